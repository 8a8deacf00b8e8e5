#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stokehold_api::fuzzing::webhook_secrets::check(data));
