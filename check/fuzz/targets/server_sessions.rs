//! Streams of commands of several connections, with restarts, crashes and clocks that step, against a model of the cache.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Err(wrong) = flowstone_sessions::run(input) {
        panic!("{wrong}");
    }
});
