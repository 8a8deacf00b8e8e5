#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stokehold_api::fuzzing::tokens::check(data));
