#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sporran_readers::read("parquet", bytes));
