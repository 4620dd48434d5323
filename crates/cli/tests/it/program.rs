//! The program as a whole: old command forms, missing paths, streams, interrupts, generated pages.

use std::{
    collections::BTreeSet,
    fs,
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use crate::common::{errors, interrupt, json, root, sporran};

/// An encoder of sentences.
fn encoder() -> String {
    root().join("crates/transformers/tests/data/encoders/sentence").display().to_string()
}

/// A cross-encoder.
fn cross_encoder() -> String {
    root().join("crates/transformers/tests/data/encoders/bert-sequence").display().to_string()
}

/// The exit code and the errors of a call.
fn call(folder: &Path, arguments: &[&str]) -> (Option<i32>, String) {
    let output = sporran(folder, arguments).stdin(Stdio::null()).output().unwrap();
    (output.status.code(), errors(&output))
}

/// The standard output of a call.
fn printed(arguments: &[&str]) -> String {
    let output = sporran(&root(), arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// A call whose three streams are pipes.
fn piped(folder: &Path, arguments: &[&str]) -> Child {
    sporran(folder, arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn the_generated_manual_is_up_to_date() {
    let committed = fs::read_to_string(root().join("docs/cli.md")).unwrap();
    assert!(
        committed == printed(&["docs", "cli"]),
        "docs/cli.md is stale; run `cargo run -p sporran-cli -- docs cli > docs/cli.md`"
    );
}

#[test]
fn the_generated_page_of_models_is_up_to_date() {
    let committed = fs::read_to_string(root().join("docs/models.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("models.md");
    fs::write(&page, &committed).unwrap();
    printed(&["docs", "models", page.to_str().unwrap()]);
    assert!(
        committed == fs::read_to_string(&page).unwrap(),
        "docs/models.md is stale; run `cargo run -p sporran-cli -- docs models docs/models.md`"
    );
    assert!(committed.contains("| Pegasus | `pegasus` | generation | `packed` | `f32`, `int8` |"));
}

#[test]
fn the_generated_manual_of_configs_is_up_to_date() {
    let folder = tempfile::tempdir().unwrap();
    printed(&["docs", "config", folder.path().to_str().unwrap()]);
    let names = |folder: &Path| -> BTreeSet<String> {
        let entries = fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let committed = root().join("docs/config");
    assert_eq!(names(folder.path()), names(&committed));
    for name in names(folder.path()) {
        let (new, old) = (folder.path().join(&name), committed.join(&name));
        assert!(
            fs::read(new).unwrap() == fs::read(old).unwrap(),
            "docs/config/{name} is stale; run `cargo run -p sporran-cli -- docs config docs/config`"
        );
    }
}

#[test]
fn completions_and_man_pages_cover_every_verb() {
    for shell in ["bash", "zsh", "fish"] {
        let script = printed(&["completions", shell]);
        assert!(script.contains("answer-sets") && script.contains("rank-keys"), "{shell}");
    }
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("man1");
    printed(&["man", pages.to_str().unwrap()]);
    let page = fs::read_to_string(pages.join("sporran-evaluate-kilt.1")).unwrap();
    assert!(page.contains("rank\\-keys") && page.contains("Example"), "{page}");
    assert!(pages.join("sporran.1").is_file() && !pages.join("sporran-docs.1").exists());
}

#[test]
fn the_error_for_an_old_form_prints_the_new_form() {
    let folder = tempfile::tempdir().unwrap();
    for (old, new) in [
        (
            &["evaluate", "--gold", "g", "--guess", "p", "--json"][..],
            "sporran evaluate kilt --gold g --guess p --json",
        ),
        (&["evaluate", "--ranking", "r.jsonl"], "sporran evaluate ranking r.jsonl"),
        (
            &["evaluate", "--knowledgenet", "--gold", "g", "--guess", "p"],
            "sporran evaluate facts --gold g --guess p",
        ),
        (&["evaluate", "--answer-sets", "a"], "sporran evaluate answer-sets a"),
        (
            &["convert", "--from", "kilt", "--to", "topics", "--output", "o", "my tasks"],
            "sporran convert files --from kilt --to topics --output o 'my tasks'",
        ),
        (
            &["convert", "--map", "fever", "--store", "s", "--split", "dev", "--output", "o", "i"],
            "sporran convert map --from fever --store s --split dev --output o i",
        ),
    ] {
        let (code, errors) = call(folder.path(), old);
        assert_eq!(code, Some(2), "{old:?}: {errors}");
        assert!(errors.contains("has a new form") && errors.contains(new), "{old:?}: {errors}");
    }
}

#[test]
fn every_verb_names_a_missing_path_and_the_current_folder() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("here"), "{}\n").unwrap();
    let known = encoder();
    let calls: &[(&str, &str)] = &[
        ("run none.toml", "file none.toml"),
        ("populate none.toml", "file none.toml"),
        ("reason none.toml", "file none.toml"),
        ("reason --kb none", "file or folder none"),
        ("reason --kb here --links none", "folder none"),
        ("reason --kb here --rules none", "file none"),
        ("index none.toml", "file none.toml"),
        ("retrieve none.toml", "file none.toml"),
        ("explain none.toml --id a", "file none.toml"),
        ("embed --model some/none", "model folder some/none"),
        ("embed --model none", "model none"),
        ("rerank --model none", "model none"),
        ("rerank --model MODEL --wowpp none --output o", "file none"),
        ("generate --model none", "model none"),
        ("train none.toml", "file none.toml"),
        ("tune none.toml", "file none.toml"),
        ("evaluate kilt --gold none --guess here", "file none"),
        ("evaluate kilt --gold here --guess none", "file none"),
        ("evaluate kilt --gold here --guess here --against none", "file none"),
        ("evaluate ranking none", "file none"),
        ("evaluate facts --gold here --guess none", "file none"),
        ("evaluate links none --kb here", "folder none"),
        ("evaluate links MODEL --kb none", "file or folder none"),
        ("evaluate relations --gold none --guess here", "file none"),
        ("evaluate answer-sets none", "file none"),
        ("evaluate answer-sets here --tokenizer none", "file none"),
        ("evaluate agreement none", "file none"),
        ("report none", "folder none"),
        ("reproduce --expected none", "file none"),
        ("submit check none", "file none"),
        ("submit check --inputs none --predictions .", "folder none"),
        ("submit pack --inputs . --predictions none --output o.tar.gz", "folder none"),
        ("convert files --from kilt --to topics --output o none", "file or folder none"),
        ("convert map --from fever --store none --split dev --output o here", "folder none"),
        ("convert map --from fever --store . --split dev --output o none", "file none"),
        ("convert queries --store none --count 4 --output o", "folder none"),
        ("convert korc none.toml", "file none.toml"),
        ("convert gold --wowpp none --output o here", "file none"),
        ("describe none", "file none"),
        ("models import none", "folder none"),
        ("models show none", "model none"),
        ("models list --models none", "folder none"),
        ("config check none.toml", "file none.toml"),
        ("config show none.toml", "file none.toml"),
        ("doctor --verify none", "folder none"),
    ];
    let here = folder.path().canonicalize().unwrap();
    for (line, missing) in calls {
        let arguments: Vec<&str> =
            line.split(' ').map(|word| if word == "MODEL" { known.as_str() } else { word }).collect();
        let (code, errors) = call(folder.path(), &arguments);
        assert_eq!(code, Some(2), "{line}: {errors}");
        assert!(errors.contains(&format!("no {missing}")), "{line}: {errors}");
        let note = format!("you are in {}; paths are relative to it", here.display());
        assert!(errors.contains(&note), "{line}: {errors}");
        assert!(!errors.contains("hint"), "{line}: {errors}");
    }
    assert!(!folder.path().join("o").exists());
    // A path in a config is looked up from the same folder.
    let config = "workflow = \"answer\"\nname = \"a\"\n[source]\npath = \"lost\"\n[tasks]\nfiles = [\"here\"]\n[retriever]\nkind = \"bm25\"\n";
    fs::write(folder.path().join("c.toml"), config).unwrap();
    let (code, errors) = call(folder.path(), &["index", "c.toml"]);
    assert!(
        code == Some(2) && errors.contains("no file or folder lost") && errors.contains("hint: you are in"),
        "{errors}"
    );
}

#[test]
fn errors_in_a_pipe_have_no_colours_and_only_wrong_calls_get_hints() {
    let folder = tempfile::tempdir().unwrap();
    let (code, errors) = call(folder.path(), &["embed", "--model", &encoder(), "--batch-size", "0"]);
    assert_eq!(code, Some(2));
    assert!(errors.starts_with("error: --batch-size") && errors.contains("hint:"), "{errors}");
    assert!(!errors.contains('\u{1b}'), "{errors:?}");
    // A folder cannot be created below a file: the work fails, and there is no hint.
    fs::write(folder.path().join("file"), "").unwrap();
    let (code, errors) = call(folder.path(), &["man", "file/pages"]);
    assert_eq!(code, Some(1), "{errors}");
    assert!(!errors.contains("hint:") && errors.contains("because:"), "{errors}");
}

#[test]
fn a_batch_size_of_one_answers_each_line_before_reading_the_next() {
    let request = |index: usize| format!(r#"{{"query": "q{index}", "passages": ["river", "song"]}}"#);
    let text = |index: usize| format!("war and song {index}");
    for (verb, model, line) in
        [("embed", encoder(), &text as &dyn Fn(usize) -> String), ("rerank", cross_encoder(), &request)]
    {
        let mut child = piped(&root(), &[verb, "--model", &model, "--json", "--batch-size", "1"]);
        let mut input = child.stdin.take().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut streamed = String::new();
        for index in 0..3 {
            writeln!(input, "{}", line(index)).unwrap();
            // Without an answer the test would block here.
            output.read_line(&mut streamed).unwrap();
        }
        drop(input);
        assert!(child.wait().unwrap().success());
        assert_eq!(streamed.lines().count(), 3);
        // The same lines in one batch give the same values in the same order, up to rounding.
        let mut child = piped(&root(), &[verb, "--model", &model, "--json"]);
        let all: String = (0..3).map(|index| format!("{}\n", line(index))).collect();
        child.stdin.take().unwrap().write_all(all.as_bytes()).unwrap();
        let together = child.wait_with_output().unwrap();
        let values = |text: &str| -> Vec<Vec<f64>> {
            text.lines()
                .map(|line| {
                    let line: serde_json::Value = serde_json::from_str(line).unwrap();
                    let list = line.as_object().unwrap().values().next().unwrap().as_array().unwrap();
                    list.iter().map(|value| value.as_f64().unwrap()).collect()
                })
                .collect()
        };
        let together = values(&String::from_utf8(together.stdout).unwrap());
        let streamed = values(&streamed);
        assert_eq!(streamed.len(), together.len());
        for (one, other) in streamed.concat().iter().zip(together.concat()) {
            assert!((one - other).abs() < 1e-5, "{verb}: {one} {other}");
        }
    }
}

/// As with `2>&1 | head`. Progress and warnings are left out then.
#[cfg(target_os = "linux")]
#[test]
fn a_full_standard_error_does_not_end_the_work() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("bees.md"), "# Bees\n\nThe bees sleep in winter.\n").unwrap();
    let full = || fs::File::options().write(true).open("/dev/full").unwrap();
    let output = sporran(folder.path(), &["ask", "bees.md", "when do bees sleep"])
        .env("XDG_CACHE_HOME", folder.path().join("cache"))
        .stderr(full())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stdout).unwrap().contains("sleep in winter"));
    let output = sporran(folder.path(), &["ask", "none.md", "when"]).stderr(full()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn ctrl_c_prints_the_line_to_continue_with() {
    let mut child = piped(&root(), &["embed", "--model", &encoder(), "--batch-size", "1"]);
    let mut input = child.stdin.take().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut answer = String::new();
    for _ in 0..2 {
        writeln!(input, "war").unwrap();
        output.read_line(&mut answer).unwrap();
    }
    // The second answer is counted after it is printed.
    std::thread::sleep(Duration::from_millis(200));
    let (code, errors) = interrupt(child);
    assert_eq!(code, Some(130), "{errors}");
    assert!(errors.contains("2 lines answered; continue with line 3"), "{errors}");
}

#[test]
fn ctrl_c_leaves_no_incomplete_output() {
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["convert", "files", "--from", "kilt", "--to", "topics", "--output", "out.tsv", "-"];
    let mut child = piped(folder.path(), &arguments);
    // More than the buffers hold, so that a part is on disk; the input stays open.
    let mut input = child.stdin.take().unwrap();
    let line = format!("{{\"id\": \"ID\", \"input\": \"{}\", \"output\": []}}\n", "war ".repeat(250));
    for id in 0..20_000 {
        input.write_all(line.replace("ID", &id.to_string()).as_bytes()).unwrap();
    }
    let names = || -> Vec<String> {
        let entries = fs::read_dir(folder.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect()
    };
    let started = Instant::now();
    while !names().iter().any(|name| name.starts_with(".sporran-")) {
        assert!(started.elapsed() < Duration::from_secs(60), "no output was begun");
        std::thread::sleep(Duration::from_millis(20));
    }
    let (code, errors) = interrupt(child);
    drop(input);
    assert_eq!(code, Some(130), "{errors}");
    assert!(errors.contains("out.tsv was not written"), "{errors}");
    assert_eq!(names(), Vec::<String>::new());
}

#[test]
fn ctrl_c_prints_the_folder_to_resume() {
    let folder = tempfile::tempdir().unwrap();
    let config = root().join("configs/quickstart.toml").display().to_string();
    let place = |key: &str, name: &str| format!("{key}={}", folder.path().join(name).display());
    let (output, indexes) = (place("output", "runs"), place("source.indexes", "indexes"));
    let arguments = ["-q", "run", &config, &output, &indexes, "tasks.limit=30", "then=[]", "--json"];
    let child = piped(&root(), &arguments);
    let run = folder.path().join("runs/quickstart");
    let started = Instant::now();
    while !run.is_dir() {
        assert!(started.elapsed() < Duration::from_secs(60), "the run was not begun");
        std::thread::sleep(Duration::from_millis(5));
    }
    let (code, errors) = interrupt(child);
    assert_eq!(code, Some(130), "{errors}");
    let advice =
        format!("{} keeps the finished parts; run the same command again to continue", run.display());
    assert!(errors.contains(&advice), "{errors}");
    assert_eq!(json(&root(), &arguments)["tasks"].as_array().map(Vec::len), Some(11));
}

#[test]
fn a_verb_that_does_not_apply_is_refused_before_the_configs_mistakes() {
    let folder = tempfile::tempdir().unwrap();
    let config = root().join("configs/wowpp/tfidf.toml").display().to_string();
    let output = sporran(folder.path(), &["index", &config, "data.train=none.json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let message = errors(&output);
    assert!(message.contains("this command does not apply to `knowledge-selection`"), "{message}");
    assert!(!message.contains("none.json"), "{message}");
}
