//! The agent of a sandbox: docs/agent-protocol.md is what it does, this is how.
//!
//! One thread (`agent`) owns all connections and processes and never blocks; four workers (`workers`) do what may block. Codecs
//! and rules are pure and stand alone: `frame`, `fields`, `paths`, `users`, `environment`, `ring`, `output`, `watch_queue`, `timers`.

mod agent;
pub mod boot;
mod cgroup;
mod compose;
mod configure;
mod connection;
mod context;
mod directory;
mod entry;
mod environment;
mod errors;
pub mod fields;
mod files;
pub mod frame;
mod handles;
mod inotify;
mod input;
mod list;
mod mounts;
pub mod operations;
mod output;
mod paths;
mod poller;
mod process;
mod process_events;
mod pty;
mod read_at;
mod relieve;
mod remove;
mod ring;
mod serve_connection;
mod serve_dial;
mod serve_process;
mod serve_watch;
mod spawn;
mod start;
mod starting;
mod stopping;
mod sys;
mod timers;
mod tunnel;
mod users;
mod watch;
mod watch_queue;
mod workers;
mod xattrs;
