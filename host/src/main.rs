//! The service's hands on the machine: what needs system calls that Node does not have.
//!
//! `sandbar-host serve` is kept running beside the service and does mounts and watches processes, a line a request, so that no
//! program is started for them. `sandbar-host enter` puts itself into control groups and becomes another program.
#![deny(unsafe_op_in_unsafe_fn)]

mod enter;
mod identity;
mod idmap;
mod mounts;
mod netns;
mod serve;
mod sys;
mod watch;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.first().map(String::as_str) {
        Some("serve") => serve::serve(),
        Some("enter") => enter::enter(&args[1..]),
        _ => Err("usage: sandbar-host serve | enter [--cgroup FILE]... [--cgroup2-view] -- PROGRAM ARG...".to_string()),
    };
    if let Err(message) = outcome {
        eprintln!("sandbar-host: {message}");
        std::process::exit(1);
    }
}
