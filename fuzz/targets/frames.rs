#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stokehold_wire::fuzzing::check(data));
