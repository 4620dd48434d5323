//! Wrong files: the error names file, line and field, the exit code is 2, and no half-written file is left.

use std::{fs, path::Path};

use crate::common::{errors, root, sporran};

/// Writes three pages, two questions, and a config that retrieves from them.
fn write_inputs(folder: &Path) {
    let pages = [
        r#"{"wikipedia_id":"1","wikipedia_title":"Berlin","text":["Berlin\n","Berlin is the capital of Germany.\n"]}"#,
        r#"{"wikipedia_id":"2","wikipedia_title":"Paris","text":["Paris\n","Paris is the capital of France.\n"]}"#,
        r#"{"wikipedia_id":"3","wikipedia_title":"Oslo","text":["Oslo\n","Oslo is the capital of Norway.\n"]}"#,
    ];
    std::fs::write(folder.join("pages.jsonl"), pages.join("\n")).unwrap();
    let task = [
        r#"{"id":"a","input":"capital of France","output":[{"answer":"Paris","provenance":[{"wikipedia_id":"2","title":"Paris"}]}]}"#,
        r#"{"id":"b","input":"capital of Norway","output":[{"answer":"Oslo","provenance":[{"wikipedia_id":"3","title":"Oslo"}]}]}"#,
    ];
    std::fs::write(folder.join("nq-dev-kilt.jsonl"), task.join("\n")).unwrap();
    let config = "workflow = \"answer\"\nname = \"r\"\n[source]\npath = \"pages.jsonl\"\n[tasks]\nfiles = [\"nq-dev-kilt.jsonl\"]\n\
                  [retriever]\nkind = \"bm25\"\n";
    std::fs::write(folder.join("c.toml"), config).unwrap();
}

/// Every file below a folder, sorted.
fn files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![folder.to_owned()];
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() { open.push(path) } else { found.push(path.display().to_string()) }
        }
    }
    found.sort();
    found
}

/// Runs `retrieve` over the small inputs after `spoil` has changed them, and returns the error message.
fn refused(code: i32, spoil: impl FnOnce(&Path)) -> String {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path());
    spoil(folder.path());
    let output = sporran(folder.path(), &["-q", "retrieve", "c.toml"]).output().unwrap();
    let message = errors(&output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    let left = files(folder.path());
    assert!(!left.iter().any(|path| path.contains("predictions") || path.contains("report")), "{left:?}");
    assert!(!left.iter().any(|path| path.contains(".sporran-")), "{left:?}");
    message
}

#[test]
fn valid_files_are_retrieved_from_and_scored() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path());
    let output = sporran(folder.path(), &["-q", "retrieve", "c.toml", "--json"]).output().unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    // Each question shares `capital` with every page and its country with the right one only.
    assert_eq!(report["tasks"][0]["scores"]["Rprec"], 1.0);
    assert_eq!(report["tasks"][0]["scores"]["answer"], serde_json::Value::Null);
}

#[test]
fn errors_in_a_knowledge_source_name_line_and_field() {
    let replace =
        |text: &'static str| move |folder: &Path| fs::write(folder.join("pages.jsonl"), text).unwrap();
    let good = "{\"wikipedia_id\":\"1\",\"wikipedia_title\":\"A\",\"text\":[\"A\"]}\n";
    let message =
        refused(2, replace("{\"wikipedia_id\":\"1\",\"wikipedia_title\":\"A\",\"text\":[\"A\"]}\n{oops\n"));
    assert!(message.contains("pages.jsonl:2: not JSON: expected a name in quotes"), "{message}");
    let message = refused(2, replace("{\"wikipedia_id\":\"1\",\"text\":[\"A\"]}\n"));
    assert!(message.contains("pages.jsonl:1: missing field `wikipedia_title`"), "{message}");
    let message = refused(2, replace(""));
    assert!(message.contains("pages.jsonl: expected at least one page, found none"), "{message}");
    let message =
        refused(2, |folder| fs::write(folder.join("pages.jsonl"), format!("{good}{good}")).unwrap());
    assert!(
        message.contains("pages.jsonl:2: field `wikipedia_id`: `1` stands on line 1 already"),
        "{message}"
    );
    let message = refused(2, |folder| {
        fs::write(
            folder.join("pages.jsonl"),
            b"{\"wikipedia_id\":\"1\",\"wikipedia_title\":\"\xff\",\"text\":[]}",
        )
        .unwrap();
    });
    assert!(message.contains("pages.jsonl:1: invalid UTF-8 at byte 39"), "{message}");
}

#[test]
fn the_error_for_a_truncated_gzip_source_names_the_file() {
    let message = refused(2, |folder| {
        let bytes =
            fs::read(crate::common::root().join("examples/minikilt/knowledge_source.jsonl.gz")).unwrap();
        fs::write(folder.join("cut.jsonl.gz"), &bytes[..bytes.len() / 2]).unwrap();
        let config =
            fs::read_to_string(folder.join("c.toml")).unwrap().replace("pages.jsonl", "cut.jsonl.gz");
        fs::write(folder.join("c.toml"), config).unwrap();
    });
    assert!(
        message.contains("cut.jsonl.gz: after line ") && message.contains("damaged or cut off"),
        "{message}"
    );
}

#[test]
fn errors_in_a_task_file_name_line_and_field() {
    let replace =
        |text: &'static str| move |folder: &Path| fs::write(folder.join("nq-dev-kilt.jsonl"), text).unwrap();
    let message = refused(2, replace("{\"id\":\"a\",\"input\":\"x\"}\n{\"id\":\" a\",\"input\":\"y\"}\n"));
    assert!(message.contains("nq-dev-kilt.jsonl:2: field `id`: `a` stands on line 1 already"), "{message}");
    let message = refused(2, replace("{\"id\":\"a\",\"input\":\" \"}\n"));
    assert!(
        message.contains("nq-dev-kilt.jsonl:1: field `input`: expected the query's text, but it is empty"),
        "{message}"
    );
    let message = refused(2, replace("{\"id\":[],\"input\":\"x\"}\n"));
    assert!(
        message.contains("nq-dev-kilt.jsonl:1: field `id`: expected a string or an integer, found a list"),
        "{message}"
    );
    let message = refused(2, replace("\n"));
    assert!(message.contains("nq-dev-kilt.jsonl: expected at least one record, found none"), "{message}");
}

#[test]
fn all_task_files_are_read_before_anything_is_built_and_nothing_is_left() {
    let good = r#"{"id":"c","input":"capital of Germany"}"#;
    for (files_of_tasks, text, expected) in [
        (
            "files = [\"nq-dev-kilt.jsonl\", \"more.jsonl\"]",
            format!("{good}\n{{oops\n"),
            "more.jsonl:2: not JSON: ",
        ),
        (
            "files = [\"nq-dev-kilt.jsonl\", \"more.jsonl\"]",
            format!("{good}\n{good}\n"),
            "more.jsonl:2: field `id`",
        ),
        (
            "files = [\"nq-dev-kilt.jsonl\"]\ngold = \"gold\"",
            "{\"id\":\"a\",\"output\":[]}\n{\"id\":\"b\"}\n".to_owned(),
            "gold/nq-dev-kilt.jsonl:2: field `output`: expected the gold outputs, found none",
        ),
        (
            "files = [\"nq-dev-kilt.jsonl\"]\ngold = \"gold\"",
            "{\"id\":\"z\",\"output\":[]}\n".to_owned(),
            "gold/nq-dev-kilt.jsonl:1: field `id`: expected the id of a record of nq-dev-kilt.jsonl, found `z`",
        ),
    ] {
        for verb in [&["retrieve", "c.toml"][..], &["run", "c.toml"], &["run", "c.toml", "--shard", "1/2"]] {
            let folder = tempfile::tempdir().unwrap();
            write_inputs(folder.path());
            let config = fs::read_to_string(folder.path().join("c.toml")).unwrap();
            let config = config.replace("files = [\"nq-dev-kilt.jsonl\"]", files_of_tasks);
            fs::write(folder.path().join("c.toml"), config).unwrap();
            fs::create_dir(folder.path().join("gold")).unwrap();
            let name = if files_of_tasks.contains("gold") { "gold/nq-dev-kilt.jsonl" } else { "more.jsonl" };
            fs::write(folder.path().join(name), &text).unwrap();
            let before = files(folder.path());
            let output = sporran(folder.path(), &[&["-q"], verb].concat()).output().unwrap();
            let message = errors(&output);
            assert!(output.status.code() == Some(2) && message.contains(expected), "{verb:?}: {message}");
            assert_eq!(files(folder.path()), before, "{verb:?}");
            assert!(!folder.path().join("runs").exists() && !folder.path().join("indexes").exists());
        }
    }
}

#[test]
fn a_run_whose_model_is_wrong_leaves_no_folder() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path());
    let config = fs::read_to_string(folder.path().join("c.toml")).unwrap();
    // A folder that looks like a model until it is opened.
    fs::create_dir(folder.path().join("m")).unwrap();
    for name in ["config.json", "tokenizer.json"] {
        fs::write(folder.path().join("m").join(name), "{").unwrap();
    }
    let generator = "[generator]\nkind = \"seq2seq\"\nmodel = \"m\"\n";
    fs::write(folder.path().join("c.toml"), format!("{config}{generator}")).unwrap();
    let output = sporran(folder.path(), &["-q", "run", "c.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(!folder.path().join("runs").exists());
}

#[test]
fn triviaqa_without_questions_names_the_option_to_use() {
    let message = refused(2, |folder| {
        fs::rename(folder.join("nq-dev-kilt.jsonl"), folder.join("triviaqa-dev_id-kilt.jsonl")).unwrap();
        fs::write(folder.join("triviaqa-dev_id-kilt.jsonl"), "{\"id\":\"tc_1\"}\n").unwrap();
        let config = fs::read_to_string(folder.join("c.toml")).unwrap().replace("nq-dev", "triviaqa-dev_id");
        fs::write(folder.join("c.toml"), config).unwrap();
    });
    assert!(message.contains("field `input`") && message.contains("--triviaqa"), "{message}");
}

#[test]
fn config_check_lists_every_mistake() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path());
    let config = "workflow = \"answer\"\nname = \"r\"\n[source]\npath = \"lost.jsonl\"\n[tasks]\nfiles = [\"nq-dev-kilt.jsonl\"]\n\
                  [retriever]\nkind = \"bm25\"\n[evidence]\ndepth = 0\n";
    fs::write(folder.path().join("c.toml"), config).unwrap();
    let output = sporran(folder.path(), &["config", "check", "c.toml"]).output().unwrap();
    let message = errors(&output);
    assert_eq!(output.status.code(), Some(2));
    assert!(message.contains("c.toml:4: `source.path`: no file or folder lost.jsonl"), "{message}");
    assert!(message.contains("c.toml:10: `evidence.depth`: expected at least 1, found 0"), "{message}");
    let output = sporran(folder.path(), &["config", "check", "c.toml", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let depth = serde_json::json!({
        "origin": "c.toml", "line": 10, "key": "evidence.depth", "message": "expected at least 1, found 0"
    });
    assert_eq!((&found["ok"], &found["mistakes"][1]), (&serde_json::json!(false), &depth));
    fs::write(folder.path().join("c.toml"), config.replace("kind", "knid").replace("depth", "dept")).unwrap();
    let message = errors(&sporran(folder.path(), &["config", "check", "c.toml"]).output().unwrap());
    assert!(message.contains("c.toml:7: `retriever.kind`: is missing"), "{message}");
    assert!(
        message.contains("c.toml:10: `evidence.dept`: unknown field")
            && message.contains("did you mean `depth`?"),
        "{message}"
    );
    // A misspelt key hides no other mistake and is reported once.
    assert!(message.contains("c.toml:4: `source.path`: no file or folder lost.jsonl"), "{message}");
    assert_eq!(message.matches("`evidence.").count(), 1, "{message}");
}

#[test]
fn a_store_or_index_of_another_version_or_with_damage_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path());
    assert!(sporran(folder.path(), &["-q", "index", "c.toml"]).output().unwrap().status.success());
    let indexes = folder.path().join("indexes");
    let part = |start: &str| {
        let entry = fs::read_dir(&indexes).unwrap().map(|entry| entry.unwrap().path());
        entry.into_iter().find(|path| path.file_name().unwrap().to_string_lossy().starts_with(start)).unwrap()
    };
    let manifest = part("store-").join("store.json");
    let text = fs::read_to_string(&manifest).unwrap();
    fs::write(&manifest, text.replace("\"version\": 1", "\"version\": 7")).unwrap();
    let output = sporran(folder.path(), &["-q", "retrieve", "c.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("reads version 1, the store has version 7"), "{}", errors(&output));
    fs::write(&manifest, &text).unwrap();
    let largest = fs::read_dir(part("bm25-")).unwrap().map(|entry| entry.unwrap().path());
    let largest = largest.max_by_key(|path| fs::metadata(path).unwrap().len()).unwrap();
    let bytes = fs::read(&largest).unwrap();
    fs::write(&largest, &bytes[..bytes.len() - 1]).unwrap();
    let output = sporran(folder.path(), &["-q", "retrieve", "c.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
}

#[test]
fn a_file_instead_of_a_folder_is_an_error() {
    let file = |name: &'static str, line: &'static str| {
        move |folder: &Path| {
            fs::write(folder.join(name), "").unwrap();
            let config = fs::read_to_string(folder.join("c.toml")).unwrap();
            fs::write(folder.join("c.toml"), config.replace("[tasks]", line)).unwrap();
        }
    };
    let message = refused(2, file("there", "indexes = \"there\"\n[tasks]"));
    assert!(message.contains("`source.indexes`: expected a folder, found the file there"), "{message}");
    let message = refused(2, file("indexes", "[tasks]"));
    assert!(message.contains("`source.indexes`: expected a folder, found the file indexes"), "{message}");
    let message = refused(2, file("runs", "[tasks]"));
    assert!(message.contains("runs: expected a folder, found a file"), "{message}");
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path());
    file("there", "indexes = \"there/below\"\n[tasks]")(folder.path());
    let output = sporran(folder.path(), &["config", "check", "c.toml"]).output().unwrap();
    let message = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(
        message.contains("c.toml:5: `source.indexes`: expected a folder, found the file there"),
        "{message}"
    );
}

#[test]
fn a_size_that_contradicts_a_taggers_weights_is_an_error_at_its_field() {
    let folder = tempfile::tempdir().unwrap();
    let root = crate::common::root();
    let tagger = folder.path().join("tagger");
    fs::create_dir(&tagger).unwrap();
    for entry in fs::read_dir(root.join("models/ner-small")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, tagger.join(path.file_name().unwrap())).unwrap();
    }
    let good = fs::read_to_string(tagger.join("tagger.json")).unwrap();
    let place = |key: &str, path: &Path| format!("{key}={}", path.display());
    let (mentions, output) = (place("mentions.tagger", &tagger), place("output", folder.path()));
    for (field, name, value) in [
        ("features.buckets", "buckets", 3u64),
        ("lstm.inputs", "width", 5),
        ("lstm.hidden", "hidden", 7),
        ("lstm.layers", "layers", 1 << 40),
    ] {
        let mut config: serde_json::Value = serde_json::from_str(&good).unwrap();
        let table = if ["buckets", "width"].contains(&name) { "features" } else { "lstm" };
        assert!(config[table][name].is_u64(), "{config}");
        config[table][name] = value.into();
        fs::write(tagger.join("tagger.json"), config.to_string()).unwrap();
        let arguments = ["-q", "populate", "configs/quickstart-kbp.toml", &mentions, &output];
        let output = sporran(&root, &arguments).output().unwrap();
        let message = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(&format!("tagger/tagger.json: field `{field}`: expected ")), "{message}");
    }
}

#[test]
fn a_missing_model_file_or_tensor_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let generate = |arguments: &[&str]| sporran(folder.path(), arguments).output().unwrap();
    let output = generate(&["generate", "--model", "nowhere"]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("no model nowhere"), "{}", errors(&output));
    let model = folder.path().join("model");
    fs::create_dir(&model).unwrap();
    for entry in fs::read_dir(crate::common::root().join("models/minikilt-reader")).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, model.join(path.file_name().unwrap())).unwrap();
    }
    let config = fs::read_to_string(model.join("config.json")).unwrap();
    fs::write(model.join("config.json"), config.replace("\"d_ff\": 384", "\"d_ff\": 385")).unwrap();
    let output = generate(&["generate", "--model", "model"]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("385") && errors(&output).contains("384"), "{}", errors(&output));
    fs::write(model.join("config.json"), config.replace("\"num_layers\": 3", "\"num_layers\": 4")).unwrap();
    let output = generate(&["generate", "--model", "model"]);
    assert_eq!(output.status.code(), Some(2), "{}", errors(&output));
    assert!(errors(&output).contains("encoder.block.3"), "{}", errors(&output));
}

/// A file system of 1 MiB, if the test has the rights to mount one.
#[cfg(target_os = "linux")]
struct Tmpfs(tempfile::TempDir);

#[cfg(target_os = "linux")]
impl Tmpfs {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mut mount = std::process::Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"]).arg(folder.path());
        mount.output().is_ok_and(|output| output.status.success()).then(|| Self(folder))
    }
}

#[cfg(target_os = "linux")]
impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg(self.0.path()).output();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_full_disk_is_an_error_and_leaves_no_files() {
    let Some(small) = Tmpfs::mount() else {
        eprintln!("skipped: this test has no rights to mount a small file system");
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path());
    let source = crate::common::root().join("examples/minikilt/knowledge_source.jsonl.gz");
    let path = format!("source.path={}", source.display());
    let indexes = format!("source.indexes={}", small.0.path().join("indexes").display());
    let output = sporran(folder.path(), &["-q", "index", "c.toml", &path, &indexes]).output().unwrap();
    let message = errors(&output);
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert!(message.contains("No space left on device"), "{message}");
    assert_eq!(files(small.0.path()), Vec::<String>::new());
}

#[cfg(not(feature = "cuda"))]
#[test]
fn a_gpu_is_an_error_in_a_build_without_cuda() {
    let folder = tempfile::tempdir().unwrap();
    write_inputs(folder.path());
    let model = crate::common::root().join("models/minikilt-reader");
    let expected = "expected `cpu`, since this program was built without the feature `cuda`, found `cuda:1`";
    let model = model.to_str().unwrap();
    let output =
        sporran(folder.path(), &["generate", "--model", model, "--device", "cuda:1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains(expected), "{}", errors(&output));
    // In a config the error names the line and comes before a model is loaded.
    let config = fs::read_to_string(folder.path().join("c.toml")).unwrap();
    let config =
        format!("{config}[generator]\nkind = \"seq2seq\"\nmodel = \"{model}\"\ndevice = \"cuda:1\"\n");
    let line = config.lines().count();
    fs::write(folder.path().join("c.toml"), config).unwrap();
    let output = sporran(folder.path(), &["config", "check", "c.toml"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = errors(&output);
    assert!(message.contains(expected) && message.contains(&format!("c.toml:{line}")), "{message}");
    let output =
        sporran(folder.path(), &["config", "check", "c.toml", "generator.device=\"gpu\""]).output().unwrap();
    assert!(
        errors(&output).contains("expected `cpu`, `cuda` or `cuda:N`, found `gpu`"),
        "{}",
        errors(&output)
    );
}

#[test]
fn a_report_names_the_workflows_that_it_compares() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("runs/linking");
    fs::create_dir_all(&run).unwrap();
    fs::write(run.join("manifest.json"), r#"{"workflow": "entity-linking"}"#).unwrap();
    let output = sporran(folder.path(), &["report", "runs/linking"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let expected = "runs/linking: expected a run of the workflows `answer`, `kbqa` or `population`, found one of `entity-linking`";
    assert!(errors(&output).contains(expected), "{}", errors(&output));
}

#[test]
fn a_benchmark_without_questions_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let place = format!("output={}", folder.path().join("korc").display());
    let config = "configs/korc/minikilt.toml";
    let arguments = ["-q", "convert", "korc", config, &place, "rules.batches=1", "build.min-confidence=1"];
    let output = sporran(&root(), &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(errors(&output).contains("the build made no question of"), "{}", errors(&output));
    assert!(!folder.path().join("korc/train.json").exists());
}
