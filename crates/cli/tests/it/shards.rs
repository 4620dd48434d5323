//! Shards of `index`, `embed`, `run`, `retrieve` and `populate`: their merge writes the bytes of the whole.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Output, Stdio},
    thread::sleep,
    time::Duration,
};

use crate::common::{errors, json, root, sporran};
use serde_json::Value;

/// The files of a folder and its subfolders, without hidden ones, stamps and locks, and without the manifest, which has times.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut open = vec![folder.to_owned()];
    let mut found = BTreeMap::new();
    while let Some(path) = open.pop() {
        for entry in fs::read_dir(&path).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.starts_with('.') || ["verified", "lock", "manifest.json"].contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                open.push(path);
            } else {
                found.insert(path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    assert!(!found.is_empty(), "{}", folder.display());
    found
}

/// Compares two folders file by file.
fn same(found: &Path, expected: &Path) {
    let (found, expected) = (files(found), files(expected));
    let names = |files: &BTreeMap<PathBuf, Vec<u8>>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&found), names(&expected));
    for (name, bytes) in &expected {
        // The page of a run has its times.
        assert!(name.ends_with("report.html") || found[name] == *bytes, "{}", name.display());
    }
}

fn call(folder: &Path, arguments: &[&str]) -> Output {
    sporran(folder, arguments).stdin(Stdio::null()).output().unwrap()
}

/// Calls the program, which must succeed.
fn done(folder: &Path, arguments: &[&str]) {
    let output = call(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
}

/// The message of a call that is refused.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = call(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", errors(&output));
    errors(&output)
}

/// Does all shards of a verb, the last one first, and merges them.
fn sharded(folder: &Path, verb: &str, config: &str, of: usize) {
    for index in (0..of).rev() {
        done(folder, &["-q", verb, config, "--shard", &format!("{index}/{of}")]);
    }
    done(folder, &["-q", "merge", "runs"]);
}

const PAGES: usize = 5;

/// A folder with five pages, 150 questions, and a config.
fn made_up(retriever: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let word = |at: usize| ["tea", "oslo", "river", "whale", "lamp", "moss", "clay", "wind"][at % 8];
    let text = |page: usize, count: usize| -> String {
        let words = (0..count).map(|at| word(at * (page + 3) + at * at / 7));
        words.collect::<Vec<_>>().join(" ")
    };
    let page = |page: usize| {
        let (title, text) = (format!("{} {page}", word(page)), text(page, 90 * (page * page + 1)));
        let more = if page == 3 { r#","lang":"en""# } else { "" };
        format!(
            r#"{{"wikipedia_id":"{page}","wikipedia_title":"{title}","text":["{title}","{text}"]{more}}}"#
        )
    };
    fs::write(path("pages.jsonl"), (0..PAGES).map(page).collect::<Vec<_>>().join("\n")).unwrap();
    fs::write(path("redirects.tsv"), "Cup\ttea 0\n").unwrap();
    let question = |at: usize| {
        let gold =
            format!(r#"[{{"answer":"{}","provenance":[{{"wikipedia_id":"{}"}}]}}]"#, word(at), at % PAGES);
        format!(
            r#"{{"id":"q{at}","input":"{} {} {}?","output":{gold}}}"#,
            word(at),
            word(at / 3),
            word(at / 5 + 1)
        )
    };
    fs::write(path("nq-dev-kilt.jsonl"), (0..150).map(question).collect::<Vec<_>>().join("\n")).unwrap();
    fs::write(path("few.jsonl"), [question(3), question(8)].join("\n")).unwrap();
    let config = format!(
        "workflow = 'answer'\nname = 'r'\n[source]\npath = 'pages.jsonl'\nredirects = 'redirects.tsv'\n[tasks]\n\
         files = ['nq-dev-kilt.jsonl', 'few.jsonl']\n[evidence]\ndepth = 7\n{retriever}"
    );
    fs::write(path("c.toml"), config).unwrap();
    folder
}

const WORDS: &str = "[retriever]\nkind = 'bm25'\n";

fn encoder() -> PathBuf {
    root().join("crates/transformers/tests/data/encoders/sentence")
}

/// Every kind of index in one retriever.
fn all_kinds() -> String {
    let dense = |index: &str| {
        format!("[[retriever.parts]]\nkind = 'dense'\nmodel = '{}'\nindex = {index}\n", encoder().display())
    };
    let kinds = [
        dense("{ kind = 'flat' }"),
        dense("{ kind = 'flat', storage = 'int8', rescore = 2 }"),
        dense("{ kind = 'pq', parts = 4, sample = 20 }"),
        dense("{ kind = 'hnsw', links = 4, construction-width = 8 }"),
    ];
    format!(
        "[retriever]\nkind = 'hybrid'\n[[retriever.parts]]\nkind = 'bm25'\n[[retriever.parts]]\nkind = 'tfidf'\n\
         [[retriever.parts]]\nkind = 'entity'\n{}",
        kinds.concat()
    )
}

#[test]
fn any_number_of_shards_merges_to_the_bytes_of_the_whole() {
    let whole = made_up(WORDS);
    for verb in ["index", "run", "retrieve"] {
        done(whole.path(), &["-q", verb, "c.toml"]);
    }
    for of in [1, 2, 3, 7] {
        let parts = made_up(WORDS);
        let folder = parts.path();
        sharded(folder, "index", "c.toml", of);
        same(&folder.join("indexes"), &whole.path().join("indexes"));
        fs::remove_dir_all(folder.join("runs")).unwrap();
        for (verb, name) in [("run", "r"), ("retrieve", "r-retrieval")] {
            sharded(folder, verb, "c.toml", of);
            same(&folder.join("runs").join(name), &whole.path().join("runs").join(name));
            // The merged folder is that of a finished run.
            done(folder, &["-q", verb, "c.toml"]);
            let manifest = fs::read_to_string(folder.join("runs").join(name).join("manifest.json")).unwrap();
            let manifest: Value = serde_json::from_str(&manifest).unwrap();
            assert_eq!(manifest["tasks"][0]["reused"], true, "{manifest}");
            for entry in fs::read_dir(folder.join("runs")).unwrap() {
                let path = entry.unwrap().path();
                if path.to_string_lossy().contains(".shard-") {
                    fs::remove_dir_all(path).unwrap();
                }
            }
        }
    }
}

#[test]
fn shards_of_every_kind_of_index_merge_to_the_bytes_of_the_whole() {
    let whole = made_up(&all_kinds());
    done(whole.path(), &["-q", "index", "c.toml"]);
    done(whole.path(), &["-q", "retrieve", "c.toml"]);
    for of in [2, 7] {
        let parts = made_up(&all_kinds());
        let folder = parts.path();
        for index in 0..of {
            done(folder, &["-q", "index", "c.toml", "--shard", &format!("{index}/{of}")]);
        }
        done(folder, &["-q", "merge", "runs", "--output", "merged"]);
        same(&folder.join("merged"), &whole.path().join("indexes"));
        fs::remove_dir_all(folder.join("runs")).unwrap();
        sharded(folder, "retrieve", "c.toml", of);
        same(&folder.join("runs/r-retrieval"), &whole.path().join("runs/r-retrieval"));
    }
}

#[test]
fn shards_are_searched_without_a_merge() {
    let dense = format!("kind = 'dense'\nmodel = '{}'\n", encoder().display());
    for base in ["kind = 'bm25'\nk1 = 1.2\n", "kind = 'tfidf'\n", &dense] {
        let made = made_up(&format!("[retriever]\n{base}"));
        let folder = made.path();
        done(folder, &["-q", "retrieve", "c.toml"]);
        for index in 0..3 {
            done(folder, &["-q", "index", "c.toml", "--shard", &format!("{index}/3")]);
        }
        let config = fs::read_to_string(folder.join("c.toml")).unwrap();
        let sharded = "[retriever]\nkind = 'sharded'\nshards = ['runs']\n[retriever.base]\n";
        let config = config.replace("name = 'r'", "name = 's'").replace("[retriever]\n", sharded);
        fs::write(folder.join("s.toml"), &config).unwrap();
        done(folder, &["-q", "retrieve", "s.toml"]);
        for file in ["predictions/nq-dev-kilt.jsonl", "predictions/few.jsonl"] {
            let [whole, parts] = ["r", "s"]
                .map(|name| fs::read(folder.join(format!("runs/{name}-retrieval")).join(file)).unwrap());
            assert!(whole == parts, "{base} {file}");
        }
        let ranking = |name: &str| {
            let path = folder.join(format!("runs/{name}-retrieval/retrieval/nq-dev-kilt.trec"));
            let text = fs::read_to_string(path).unwrap();
            // The last column has the name of the run.
            text.lines().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect::<Vec<_>>()
        };
        assert!(!ranking("r").is_empty() && ranking("r") == ranking("s"), "{base}");
        // Options that the shards do not have.
        let other = config.replace("[retriever.base]\n", "[retriever.base]\nkind = 'bm25'\nb = 0.1\n");
        let other = other.replace(base, "");
        fs::write(folder.join("o.toml"), other).unwrap();
        let message = refused(folder, &["-q", "retrieve", "o.toml"]);
        assert!(message.contains("expected the part bm25-"), "{message}");
        let pages = fs::read_to_string(folder.join("pages.jsonl")).unwrap();
        fs::write(folder.join("pages.jsonl"), pages.replace("clay", "sand")).unwrap();
        let message = refused(folder, &["-q", "retrieve", "s.toml"]);
        assert!(message.contains("stale shard: `source` is "), "{message}");
    }
    let pq = made_up(&format!(
        "[retriever]\nkind = 'sharded'\nshards = ['nowhere']\n[retriever.base]\n{dense}index = {{ kind = 'pq', parts = 4 }}\n"
    ));
    let message = refused(pq.path(), &["config", "check", "c.toml"]);
    assert!(message.contains("`retriever.shards`: no folder nowhere"), "{message}");
}

#[test]
fn shards_of_vectors_merge_to_the_indexes_of_vectors() {
    let whole = made_up(&all_kinds());
    done(whole.path(), &["-q", "embed", "c.toml"]);
    let parts = made_up(&all_kinds());
    let folder = parts.path();
    sharded(folder, "embed", "c.toml", 3);
    same(&folder.join("indexes"), &whole.path().join("indexes"));
    let names: Vec<_> = files(&folder.join("indexes")).into_keys().collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("bm25")), "{names:?}");
    // Another instruction set rounds differently.
    done(folder, &["-q", "--isa", "portable", "embed", "c.toml", "--shard", "1/3"]);
    let message = refused(folder, &["-q", "merge", "runs"]);
    assert!(
        message.contains("foreign shard: its models ran with the instruction set ")
            && message.contains("make all shards with the same `--isa`"),
        "{message}"
    );
    let words = made_up(WORDS);
    let message = refused(words.path(), &["-q", "embed", "c.toml"]);
    assert!(message.contains("`retriever`: has no vectors to embed"), "{message}");
}

#[test]
fn shards_of_minikilt_are_those_of_its_pages_and_records() {
    let minikilt = root().join("examples/minikilt");
    let config = format!(
        "workflow = 'answer'\nname = 'm'\n[source]\npath = '{0}/knowledge_source.jsonl.gz'\n\
         redirects = '{0}/redirects.tsv'\n[tasks]\nfiles = ['{0}/kilt/nq-dev-kilt.jsonl', '{0}/kilt/wow-dev-kilt.jsonl']\n{WORDS}",
        minikilt.display()
    );
    let place = tempfile::tempdir().unwrap();
    let [whole, parts] = ["whole", "parts"].map(|name| place.path().join(name));
    for folder in [&whole, &parts] {
        fs::create_dir(folder).unwrap();
        fs::write(folder.join("c.toml"), &config).unwrap();
    }
    done(&whole, &["-q", "run", "c.toml"]);
    sharded(&parts, "index", "c.toml", 3);
    same(&parts.join("indexes"), &whole.join("indexes"));
    fs::remove_dir_all(parts.join("runs")).unwrap();
    sharded(&parts, "run", "c.toml", 3);
    same(&parts.join("runs/m"), &whole.join("runs/m"));
    let message = refused(&parts, &["report", "runs/m.shard-0-of-3"]);
    assert!(
        message.contains("m.shard-0-of-3: not finished: it is shard 0/3 only; merge all shards"),
        "{message}"
    );
    let report = json(&parts, &["-q", "run", "c.toml", "--shard", "1/3", "--json"]);
    let range = &report["ranges"]["nq-dev-kilt.jsonl"];
    assert_eq!((&range["from"], &range["to"], &range["of"]), (&53.into(), &106.into(), &160.into()));
}

#[test]
fn shards_of_inputs_that_have_changed_are_refused_by_what_has_changed() {
    let retriever = "[retriever]\nkind = 'dense'\nmodel = 'model'\nindex = { kind = 'flat' }\n";
    let made = made_up(retriever);
    let folder = made.path();
    fs::create_dir(folder.join("model")).unwrap();
    for (path, bytes) in files(&encoder()) {
        let path = folder.join("model").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
    fs::write(folder.join("q.tsv"), "a\ttea river\nb\twhale\n").unwrap();
    fs::write(folder.join("judged.txt"), "a 0 0 1\nb 0 3 1\n").unwrap();
    let config = fs::read_to_string(folder.join("c.toml")).unwrap();
    let tasks = "queries = 'q.tsv'\nqrels = 'judged.txt'\n";
    fs::write(folder.join("c.toml"), config.replace("[tasks]\n", &format!("[tasks]\n{tasks}"))).unwrap();
    for index in 0..2 {
        done(folder, &["-q", "retrieve", "c.toml", "--shard", &format!("{index}/2")]);
    }
    let merge = || refused(folder, &["-q", "merge", "runs"]);
    let changed = |file: &str, more: &str, expected: &str| {
        let path = folder.join(file);
        let before = fs::read(&path).unwrap();
        fs::write(&path, [&before, more.as_bytes()].concat()).unwrap();
        let message = merge();
        let expected =
            format!("stale shard: {expected} has changed since the shards read it; make the shards again");
        assert!(message.contains(&expected), "{file}: {message}");
        assert!(!folder.join("runs/r-retrieval").exists());
        fs::write(&path, before).unwrap();
    };
    changed("judged.txt", "b 0 1 1\n", "judged.txt");
    changed("q.tsv", "c\toslo\n", "q.tsv");
    changed("few.jsonl", "\n", "few.jsonl");
    changed("pages.jsonl", "\n", "the source pages.jsonl");
    changed("redirects.tsv", "Mug\ttea 0\n", "a file of the source, such as redirects.tsv,");
    changed("model/config.json", "\n", "`retriever.model` (\"model\")");
    done(folder, &["-q", "merge", "runs"]);
    // The manifest has the models, as that of a run has.
    let manifest = fs::read_to_string(folder.join("runs/r-retrieval/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    assert!(manifest["inputs"].get("model/config.json").is_some(), "{manifest}");
    let report = json(folder, &["report", "runs/r-retrieval", "--json"]);
    assert!(report["systems"][0]["size"]["parameters"].as_u64().unwrap() > 0, "{report}");
    let text = call(folder, &["report", "runs/r-retrieval"]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("Measures of judged.jsonl") && !text.contains("-0.0"), "{text}");
}

#[test]
fn shards_of_a_population_merge_to_its_facts() {
    let make = || {
        let folder = tempfile::tempdir().unwrap();
        let source = fs::read_to_string(root().join("examples/minikilt/knowledgenet/train.json")).unwrap();
        fs::write(folder.path().join("train.json"), source).unwrap();
        let config = format!(
            "workflow = 'population'\nname = 'kbp'\n[relations]\nmodel = '{}/models/knowledgenet-linear'\n[input]\n\
             format = 'knowledgenet'\nfiles = ['train.json']\n",
            root().display()
        );
        fs::write(folder.path().join("c.toml"), config).unwrap();
        folder
    };
    let whole = make();
    done(whole.path(), &["-q", "populate", "c.toml"]);
    let parts = make();
    sharded(parts.path(), "populate", "c.toml", 3);
    same(&parts.path().join("runs/kbp"), &whole.path().join("runs/kbp"));
    let train = fs::read_to_string(parts.path().join("train.json")).unwrap();
    fs::write(parts.path().join("train.json"), train + "\n").unwrap();
    let message = refused(parts.path(), &["-q", "merge", "runs"]);
    assert!(message.contains("stale shard: train.json has changed since the shards read it"), "{message}");
    let again = make();
    sharded(again.path(), "run", "c.toml", 2);
    same(&again.path().join("runs/kbp"), &whole.path().join("runs/kbp"));
}

#[test]
fn shards_that_cannot_be_merged_are_refused_by_name() {
    let made = made_up(WORDS);
    let folder = made.path();
    let shard = |index: &str, more: &[&str]| {
        let arguments = [&["-q", "index", "c.toml"], more, &["--shard", index]].concat();
        done(folder, &arguments);
    };
    let merge = || refused(folder, &["-q", "merge", "runs"]);
    assert!(merge().contains("runs: expected a folder of shards, found none"));
    shard("0/2", &[]);
    assert!(merge().contains("runs/r-index.shard-1-of-2: missing shard: expected 1/2 of 2"), "{}", merge());
    // Another config, another source, another number of shards.
    shard("1/2", &["retriever.k1=1.5"]);
    assert!(
        merge().contains("shard-1-of-2: foreign shard: `retriever.k1` is 1.5, and 0.9 in "),
        "{}",
        merge()
    );
    let pages = fs::read_to_string(folder.join("pages.jsonl")).unwrap();
    fs::write(folder.join("pages.jsonl"), pages.replace("clay", "sand")).unwrap();
    shard("1/2", &[]);
    assert!(merge().contains("shard-1-of-2: stale shard: `source` is "), "{}", merge());
    shard("0/2", &[]);
    fs::write(folder.join("pages.jsonl"), &pages).unwrap();
    let message = merge();
    assert!(
        message.contains("stale shard: `source` is ") && message.contains(" when the shard was made"),
        "{message}"
    );
    assert!(!folder.join("indexes").exists());
    shard("0/2", &[]);
    shard("1/2", &[]);
    shard("1/3", &[]);
    assert!(merge().contains("shard-1-of-3: foreign shard: it is shard 1/3, and "), "{}", merge());
    fs::remove_dir_all(folder.join("runs/r-index.shard-1-of-3")).unwrap();
    done(folder, &["-q", "index", "c.toml", "--shard", "1/2", "output=others"]);
    let message = refused(folder, &["-q", "merge", "runs", "others"]);
    assert!(
        message.contains("others/r-index.shard-1-of-2: doubled shard: shard 1/2 is in runs/"),
        "{message}"
    );
    // A flipped bit in any file.
    let part = folder.join("runs/r-index.shard-1-of-2");
    let text = files(&part).into_keys().find(|path| path.ends_with("text.bin")).unwrap();
    let mut bytes = fs::read(part.join(&text)).unwrap();
    bytes[7] ^= 1;
    fs::write(part.join(&text), &bytes).unwrap();
    let message = merge();
    assert!(
        message.contains("shard-1-of-2: damaged shard: store.") && message.contains("the checksum is wrong"),
        "{message}"
    );
    assert!(!folder.join("indexes").exists());
    // The same call builds a damaged part again, of the store or of an index.
    bytes[7] ^= 1;
    shard("1/2", &[]);
    assert!(fs::read(part.join(&text)).unwrap() == bytes);
    for (name, bytes) in &files(&part) {
        let is_of_index = name.to_string_lossy().starts_with("bm25.") && !name.ends_with("header");
        if bytes.is_empty() || !is_of_index {
            continue;
        }
        let mut damaged = bytes.clone();
        damaged[0] ^= 1;
        fs::write(part.join(name), damaged).unwrap();
        shard("1/2", &[]);
        assert!(fs::read(part.join(name)).unwrap() == *bytes, "{}", name.display());
    }
    done(folder, &["-q", "merge", "runs"]);

    // Shards of records: the task file has changed.
    for index in ["0/2", "1/2"] {
        done(folder, &["-q", "run", "c.toml", "output=answers", "--shard", index]);
    }
    let questions = fs::read_to_string(folder.join("few.jsonl")).unwrap();
    fs::write(folder.join("few.jsonl"), questions.replace("tea", "mug")).unwrap();
    let message = refused(folder, &["-q", "merge", "answers"]);
    assert!(message.contains("stale shard: few.jsonl has changed since the shards read it"), "{message}");
    fs::write(folder.join("few.jsonl"), questions).unwrap();
    done(folder, &["-q", "merge", "answers"]);
    let message = refused(folder, &["-q", "merge", "answers", "runs"]);
    assert!(message.contains("foreign shard: it is one of `index` of `r-index`, and "), "{message}");
}

#[test]
fn calls_of_shards_that_make_no_sense_are_refused() {
    let made = made_up(WORDS);
    let folder = made.path();
    for wrong in ["2/2", "a", "1", "0/0"] {
        let message = refused(folder, &["index", "c.toml", "--shard", wrong]);
        assert!(message.contains("from `0/N` to `N-1/N`"), "{message}");
    }
    let mut auto = sporran(folder, &["index", "c.toml", "--shard", "auto"]);
    for name in ["RANK", "WORLD_SIZE", "SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"] {
        auto.env_remove(name);
    }
    let output = auto.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("--shard auto: expected SLURM_ARRAY_TASK_ID"), "{}", errors(&output));
    let output = auto.env("RANK", "1").env("WORLD_SIZE", "2").output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(folder.join("runs/r-index.shard-1-of-2/shard.json").is_file());
    // These variables alone change nothing.
    let output =
        sporran(folder, &["-q", "index", "c.toml"]).env("RANK", "1").env("WORLD_SIZE", "2").output().unwrap();
    assert!(output.status.success() && folder.join("indexes").is_dir());
    fs::write(folder.join("rules.toml"), "workflow = 'rules'\nname = 'x'\n[data]\npath = 'kb'\n").unwrap();
    let message = refused(folder, &["run", "rules.toml", "--shard", "0/2"]);
    assert!(message.contains("`rules` has no shards"), "{message}");
    let model = encoder().display().to_string();
    let message = refused(folder, &["embed", "--model", &model, "--shard", "0/2"]);
    assert!(message.contains("--shard: expected a CONFIG"), "{message}");
}

#[test]
fn a_killed_merge_leaves_nothing_half_written_and_is_repeated() {
    let whole = made_up(WORDS);
    done(whole.path(), &["-q", "run", "c.toml"]);
    let parts = made_up(WORDS);
    let folder = parts.path();
    for index in ["0/2", "1/2"] {
        done(folder, &["-q", "index", "c.toml", "output=parts", "--shard", index]);
    }
    let expected = files(&whole.path().join("indexes"));
    for wait in [0, 5, 15, 25, 40, 60, 90] {
        let mut merge = sporran(folder, &["-q", "merge", "parts"]).spawn().unwrap();
        sleep(Duration::from_millis(wait));
        merge.kill().unwrap();
        merge.wait().unwrap();
        if folder.join("indexes").is_dir() {
            for entry in fs::read_dir(folder.join("indexes")).unwrap() {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                if !name.starts_with('.') {
                    for (file, bytes) in files(&path) {
                        assert!(expected[&Path::new(&name).join(file)] == bytes, "{name} after {wait} ms");
                    }
                }
            }
        }
    }
    done(folder, &["-q", "merge", "parts"]);
    same(&folder.join("indexes"), &whole.path().join("indexes"));
    for index in ["0/2", "1/2"] {
        done(folder, &["-q", "run", "c.toml", "--shard", index]);
    }
    for wait in [5, 20, 40, 70] {
        let mut merge = sporran(folder, &["-q", "merge", "runs"]).spawn().unwrap();
        sleep(Duration::from_millis(wait));
        merge.kill().unwrap();
        merge.wait().unwrap();
    }
    done(folder, &["-q", "merge", "runs"]);
    same(&folder.join("runs/r"), &whole.path().join("runs/r"));
}
