//! Reading, splitting and storing a knowledge source, and passage look-ups.
//!
//! Corpus: `--source FILE` (KILT's layout), or `--pages N` synthetic pages (default 100,000) from seed 1:
//! words `w0` to `w99999` with a long-tailed distribution, three paragraphs of 60 words a page, about 1.4 kB
//! a line. Command: `cargo bench --bench store -- [--source FILE] [--pages N]`. Peer: Python's json in the
//! same run. It parses each line, skips list items and headers, splits the words into hundreds, and stores
//! nothing; `PYTHON` names the interpreter (`python3`), and without one the peer is skipped. Its seconds are
//! CPU time, which excludes waiting; ours are wall-clock time, the best of three.
#![allow(clippy::print_stdout, reason = "a bench reports on standard output")]

use std::{
    error::Error,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use sporran::{
    kilt::{
        PassageId, PassageSplit, PassageStore,
        jsonl::{self, Writer},
        store::{BuildOptions, size_of_line},
    },
    pipeline::manifest::peak_memory_bytes,
};

const PEER: &str = "
import json, gzip, sys, time
path = sys.argv[1]
def lines():
    with (gzip.open(path, 'rb') if path.endswith('.gz') else open(path, 'rb')) as file:
        yield from file
start = time.process_time()
size = sum(len(line) for line in lines())
read = time.process_time() - start
start = time.process_time()
for line in lines():
    json.loads(line)
parsed = time.process_time() - start
start = time.process_time()
passages = 0
for line in lines():
    words = []
    for paragraph in json.loads(line)['text'][1:]:
        if not paragraph.startswith(('Section::::', 'BULLET::::')):
            words += paragraph.split()
    passages += len([' '.join(words[at:at + 100]) for at in range(0, len(words), 100)]) or 1
print(passages, size, read, parsed, time.process_time() - start)
";

/// The result of the fastest of three runs, and its seconds.
fn best<T>(mut run: impl FnMut() -> Result<T, Box<dyn Error>>) -> Result<(T, f64), Box<dyn Error>> {
    let mut best: Option<(T, f64)> = None;
    for _ in 0..3 {
        let start = Instant::now();
        let result = run()?;
        let seconds = start.elapsed().as_secs_f64();
        if best.as_ref().is_none_or(|(_, least)| seconds < *least) {
            best = Some((result, seconds));
        }
    }
    best.ok_or_else(|| "nothing ran".into())
}

/// The number of bytes of the file, read and dropped.
fn read(path: &Path) -> Result<u64, Box<dyn Error>> {
    let mut file = fs::File::open(path)?;
    let (mut buffer, mut total) = (vec![0; 4 << 20], 0);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(total),
            read => total += read as u64,
        }
    }
}

/// The number of bytes in its lines.
fn lines(path: &Path) -> Result<u64, Box<dyn Error>> {
    let mut total = 0;
    jsonl::open(path)?.chunks(|_, chunk| {
        total += chunk.par_lines().map(|(_, bytes)| bytes.len() as u64 + 1).sum::<u64>();
        Ok(())
    })?;
    Ok(total)
}

/// The number of passages, with reading and splitting on one thread.
fn split_alone(path: &Path) -> Result<u64, Box<dyn Error>> {
    let mut reader = jsonl::open(path)?;
    let mut passages = 0;
    while let Some((line, bytes)) = reader.next_line()? {
        passages += size_of_line(path, line, bytes, PassageSplit::Words)?.0;
    }
    Ok(passages)
}

/// The number of passages, with all threads.
fn split(path: &Path) -> Result<u64, Box<dyn Error>> {
    let mut passages = 0;
    jsonl::open(path)?.chunks(|path, chunk| {
        let cut: sporran::kilt::Result<Vec<u64>> = chunk
            .par_lines()
            .map(|(line, bytes)| Ok(size_of_line(path, line, bytes, PassageSplit::Words)?.0))
            .collect();
        passages += cut?.iter().sum::<u64>();
        Ok(())
    })?;
    Ok(passages)
}

/// Words by rank; the frequency of the n-th is about 1/n of the first.
fn word(random: &mut ChaCha8Rng) -> u32 {
    (100_000f64.powf(random.random::<f64>()) - 1.0) as u32
}

fn synthetic(path: &Path, pages: u32) -> Result<(), Box<dyn Error>> {
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut writer = Writer::create(path)?;
    for page in 0..pages {
        let mut line =
            format!(r#"{{"wikipedia_id":"{page}","wikipedia_title":"Page {page}","text":["Page {page}\n""#);
        for _ in 0..3 {
            line.push_str(",\"");
            for _ in 0..60 {
                line.push_str(&format!("w{} ", word(&mut random)));
            }
            line.push_str("\\n\"");
        }
        line.push_str("],\"anchors\":[],\"categories\":\"\"}");
        writer.line(line.as_bytes())?;
    }
    Ok(writer.finish()?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut source: Option<PathBuf> = None;
    let mut pages = 100_000;
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(argument) = arguments.next() {
        let value = arguments.next().ok_or_else(|| format!("{argument} needs a value"))?;
        match argument.as_str() {
            "--source" => source = Some(value.into()),
            "--pages" => pages = value.parse()?,
            _ => return Err(format!("unknown option {argument}; known are --source and --pages").into()),
        }
    }
    let folder = tempfile::tempdir()?;
    let source = match source {
        Some(path) => path,
        None => {
            let path = folder.path().join("pages.jsonl");
            synthetic(&path, pages)?;
            path
        }
    };

    let before = peak_memory_bytes();
    let options = BuildOptions { source: source.clone(), redirects: None, split: PassageSplit::Words };
    let start = Instant::now();
    let store = PassageStore::build(&options, folder.path().join("store"), &mut |_| {})?;
    let took = start.elapsed().as_secs_f64();
    println!("{} pages, {} passages, {:.1} MiB of store", store.pages(), store.len(), mib(store.bytes()));
    println!("built in {took:.2} s on {} threads", rayon::current_num_threads());
    println!(
        "peak memory {:.0} MiB, {:.0} MiB of it before the build",
        mib(peak_memory_bytes()),
        mib(before)
    );

    let start = Instant::now();
    let store = PassageStore::open(folder.path().join("store"))?;
    println!("opened in {:.2} ms", start.elapsed().as_secs_f64() * 1e3);

    let mut random = ChaCha8Rng::seed_from_u64(2);
    let wanted: Vec<PassageId> =
        (0..200_000).map(|_| PassageId(random.random_range(0..store.len() as u32))).collect();
    let rate = |name: &str, found: &dyn Fn(PassageId) -> usize| {
        let start = Instant::now();
        let sum: usize = wanted.iter().map(|&id| found(id)).sum();
        let rate = wanted.len() as f64 / start.elapsed().as_secs_f64();
        println!("{rate:>12.0} look-ups a second on one thread: {name} (checksum {sum})");
    };
    rate("passage with its place, by number", &|id| store.passage(id).text.len());
    rate("page by id", &|id| {
        let page = store.page_of(id);
        usize::from(store.page_by_id(&store.page_id(page)) == Some(page))
    });
    rate("page by title", &|id| {
        let page = store.page_of(id);
        usize::from(store.page_by_title(store.page_title(page)).is_some())
    });

    let (on_disk, read_took) = best(|| read(&source))?;
    let (bytes, lines_took) = best(|| lines(&source))?;
    let (alone, alone_took) = best(|| split_alone(&source))?;
    let (together, together_took) = best(|| split(&source))?;
    if [alone, together] != [store.len() as u64; 2] {
        return Err(format!("cut {alone} and {together} passages, the store has {}", store.len()).into());
    }
    let threads = rayon::current_num_threads();
    println!("{:>44} {:>10} {:>12} {:>8}", "", "MB/s", "MB/s a core", "cores");
    let row = |name: &str, bytes: u64, seconds: f64, cores: usize| {
        let rate = bytes as f64 / seconds / 1e6;
        println!("{name:>44} {rate:>10.1} {:>12.1} {cores:>8}", rate / cores as f64);
    };
    row("the file's bytes, read and dropped", on_disk, read_took, 1);
    row("lines, decompressed where they are not plain", bytes, lines_took, threads);
    row("lines parsed and cut", bytes, alone_took, 1);
    row("lines parsed and cut", bytes, together_took, threads);
    row("lines parsed, cut, hashed and stored", bytes, took, threads);

    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let Ok(output) = Command::new(&python).args(["-c", PEER]).arg(&source).output() else {
        println!("no {python}: the peer is left out");
        return Ok(());
    };
    let text = String::from_utf8(output.stdout)?;
    let figures: Vec<f64> = text.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
    let [passages, size, read, parsed, cut] = figures[..] else {
        return Err(format!("the peer failed: {}", String::from_utf8_lossy(&output.stderr)).into());
    };
    row("Python: lines", size as u64, read, 1);
    row("Python: lines parsed", size as u64, parsed, 1);
    row("Python: lines parsed and cut", size as u64, cut, 1);
    println!(
        "parsed and cut on one core {:.1} times as fast as Python, on {threads} {:.1} times",
        cut / alone_took,
        cut / together_took
    );
    if passages as usize != store.len() {
        return Err(format!("Python cut {passages} passages, we cut {}", store.len()).into());
    }
    Ok(())
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
