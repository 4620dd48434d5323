//! Every reader reads its seeds and changed seeds: it neither panics nor needs much memory.
//!
//! `SPORRAN_MUTATIONS` is the number of changed inputs of each reader, 300 without it; `SPORRAN_READER` names one reader. An input
//! at which a reader panics is written to a file, which its message names.

use std::{env, fs, panic, path::Path};

use sporran_readers::{READERS, Reader, mutated};

/// Bytes of address space beyond those at the start, for allocations by the counts of a file.
#[cfg(target_os = "linux")]
const MEMORY: u64 = 4 << 30;

/// Limits the address space, so that a count that a file does not justify ends the test.
#[cfg(target_os = "linux")]
fn limit_memory() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let statistics = fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statistics.split(' ').next().unwrap().parse().unwrap();
    let limit = Rlimit { current: Some(pages * 4096 + MEMORY), maximum: getrlimit(Resource::As).maximum };
    setrlimit(Resource::As, limit).unwrap();
}

#[cfg(not(target_os = "linux"))]
fn limit_memory() {}

fn replay(reader: &Reader, count: u64) -> Vec<String> {
    let seeds = reader.seeds().unwrap();
    assert!(!seeds.is_empty(), "{}: expected seeds in {}", reader.name, reader.folder().display());
    let changed = (0..count).map(|number| mutated(&seeds[number as usize % seeds.len()], number));
    let mut faults = Vec::new();
    for (at, bytes) in seeds.iter().cloned().chain(changed).enumerate() {
        if panic::catch_unwind(|| (reader.read)(&bytes)).is_err() {
            let path = env::temp_dir().join(format!("sporran-{}-{at}", reader.name));
            fs::write(&path, &bytes).unwrap();
            faults.push(format!("{}: panic at {}", reader.name, path.display()));
        }
    }
    faults
}

#[test]
fn readers_return_errors_for_changed_files() {
    let count = env::var("SPORRAN_MUTATIONS").map_or(300, |text| text.parse().unwrap());
    let only = env::var("SPORRAN_READER").ok();
    limit_memory();
    let wanted = |reader: &&Reader| only.as_ref().is_none_or(|only| only == reader.name);
    let faults: Vec<String> =
        READERS.iter().filter(wanted).flat_map(|reader| replay(reader, count)).collect();
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn each_reader_has_a_fuzz_target() {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let manifest = fs::read_to_string(fuzz.join("Cargo.toml")).unwrap();
    for Reader { name, .. } in READERS {
        let target = fs::read_to_string(fuzz.join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(target.contains(&format!("read(\"{name}\", bytes)")), "{target}");
        assert!(manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")), "{name}");
    }
    assert_eq!(fs::read_dir(fuzz.join("fuzz_targets")).unwrap().count(), READERS.len());
}

/// Writes the seeds that are made to the folders of the fuzz targets.
#[test]
#[ignore = "writes files for cargo fuzz"]
fn write_seeds() {
    for reader in READERS {
        let folder = reader.folder();
        fs::create_dir_all(&folder).unwrap();
        for seed in reader.seeds().unwrap() {
            fs::write(folder.join(format!("seed-{:016x}", hash(&seed))), seed).unwrap();
        }
    }
}

/// FNV's hash of 64 bits.
fn hash(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
