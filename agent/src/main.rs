//! Entered by the C library directly: the standard library's own start-up would install signal handlers and bring in a
//! tenth of the binary, neither of which the agent has a use for.
#![no_main]

#[no_mangle]
pub extern "C" fn main() -> std::os::raw::c_int {
    sandbar_agent::boot::main()
}
