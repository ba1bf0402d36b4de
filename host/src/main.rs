//! The service's hands on the machine: what needs system calls that Node does not have.
//!
//! `sandbar-host serve` is kept running beside the service and does mounts and watches processes, a line a request, so that no
//! program is started for them. `sandbar-host enter` puts itself into control groups and becomes another program. `sandbar-host unpack`
//! and `sandbar-host in-root` work on trees of files that nobody vouches for: layers and templates.
#![deny(unsafe_op_in_unsafe_fn)]

mod accounts;
mod archive;
mod conntrack;
mod copy;
mod enter;
mod files;
mod glob;
mod identity;
mod idmap;
mod in_root;
mod mounts;
mod netlink;
mod place;
mod run;
mod serve;
mod slot;
mod sparse;
mod sys;
mod tar;
mod unpack;
mod watch;

use sys::Outcome;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match args.first().map(String::as_str) {
        Some("serve") => serve::serve(),
        Some("enter") => enter::enter(&args[1..]),
        Some("unpack") => unpack(&args[1..]),
        Some("in-root") => in_root::in_root(&args[1..]),
        _ => Err(format!(
            "usage: sandbar-host serve | enter [--cgroup FILE]... [--cgroup2-view] -- PROGRAM ARG... | \
             unpack DIRECTORY oci|changes LIMIT FILE [SKIPPED PATH]... | {}",
            in_root::USAGE
        )),
    };
    if let Err(message) = outcome {
        eprintln!("sandbar-host: {message}");
        std::process::exit(1);
    }
}

fn unpack(args: &[String]) -> Outcome<()> {
    match args {
        [directory, form, limit, file, skip @ ..] => unpack::unpack(
            file,
            directory,
            &unpack::Options {
                oci: form == "oci",
                skip: skip.iter().map(|path| path.as_bytes().to_vec()).collect(),
                limit: limit
                    .parse()
                    .map_err(|_| format!("'{limit}' is not a number"))?,
            },
        ),
        _ => Err("unpack needs a directory, a form, a limit and a file".to_string()),
    }
}
