//! Every operation, over TCP, against the built agent running as an ordinary process. Needs root: the agent changes users.

mod client;
#[path = "protocol/connections.rs"]
mod connections;
#[path = "protocol/dialing.rs"]
mod dialing;
#[path = "protocol/files.rs"]
mod files;
#[path = "protocol/input.rs"]
mod input;
#[path = "protocol/lifecycle.rs"]
mod lifecycle;
#[path = "protocol/output.rs"]
mod output;
#[path = "protocol/processes.rs"]
mod processes;
#[path = "protocol/terminals.rs"]
mod terminals;
#[path = "protocol/watching.rs"]
mod watching;
