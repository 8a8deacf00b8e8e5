#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stokehold_api::fuzzing::job_json::check(data));
