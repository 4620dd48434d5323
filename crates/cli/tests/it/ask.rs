//! `sporran ask`, `eval-set` and `indexes`, as a user calls them.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Output, Stdio},
};

use serde_json::{Value, json};

use crate::{
    common::{at_home, errors, root},
    make,
};

const PAGES: &str = r#"{"wikipedia_id":"1","wikipedia_title":"Mira Oberlin","text":["Mira Oberlin","Mira Oberlin was an engineer. Oberlin was born in Leipzig and studied in Vienna.","Section::::Work.","She built bridges of steel."],"lang":"en"}
{"wikipedia_id":"2","wikipedia_title":"Tea","text":["Tea","Tea is a drink. It is made of leaves and hot water."],"lang":"en","file":"drinks/tea.md","line":4}
{"wikipedia_id":"3","wikipedia_title":"Tee","text":["Tee","Tee is a drink of leaves."],"lang":"de"}
"#;

/// A folder with pages and a home of its own.
fn home() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("pages.jsonl"), PAGES).unwrap();
    folder
}

fn run(folder: &Path, arguments: &[&str]) -> Output {
    at_home(folder, arguments).output().unwrap()
}

/// The standard output of a successful call.
fn text(folder: &Path, arguments: &[&str]) -> String {
    let output = run(folder, arguments);
    assert!(output.status.success(), "{arguments:?}: {}", errors(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// The exit code and the errors of a call that fails.
fn failure(folder: &Path, arguments: &[&str]) -> (i32, String) {
    let output = run(folder, arguments);
    assert!(output.stdout.is_empty(), "{arguments:?}");
    (output.status.code().unwrap(), errors(&output))
}

fn model(name: &str) -> String {
    root().join("crates/transformers/tests/data").join(name).display().to_string()
}

#[test]
fn the_best_passages_answer_without_a_generator() {
    let home = home();
    let output = run(home.path(), &["ask", "pages.jsonl", "where was Oberlin born?"]);
    let (shown, messages) = (String::from_utf8(output.stdout.clone()).unwrap(), errors(&output));
    assert!(output.status.success(), "{messages}");
    assert!(shown.starts_with("no generator; the best passages:\n\n[1] Mira Oberlin\n"), "{shown}");
    assert!(shown.contains(">>>Oberlin was born in Leipzig and studied in Vienna.<<<"), "{shown}");
    let cache = home.path().join("cache/sporran/indexes/pages-");
    assert!(messages.contains(&format!("indexes: {}", cache.display())), "{messages}");
    assert!(messages.contains("no generator"), "{messages}");
    let quiet = run(home.path(), &["ask", "pages.jsonl", "where was Oberlin born?", "--quiet"]);
    assert_eq!((errors(&quiet), quiet.stdout), (String::new(), output.stdout));
    let scored = text(home.path(), &["ask", "pages.jsonl", "leaves", "-v", "--passages", "1"]);
    assert!(scored.contains("(score "), "{scored}");
}

#[test]
fn json_has_the_documented_keys() {
    let home = home();
    let printed = text(home.path(), &["ask", "pages.jsonl", "which drink is made of hot water", "--json"]);
    let answer: Value = serde_json::from_str(&printed).unwrap();
    let keys: Vec<&str> = answer.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["question", "answer", "evidence"]);
    assert_eq!(
        (&answer["question"], &answer["answer"]),
        (&"which drink is made of hot water".into(), &"".into())
    );
    let best = &answer["evidence"][0];
    assert_eq!(
        (&best["file"], &best["paragraph"], &best["start"]),
        (&"drinks/tea.md".into(), &1.into(), &0.into())
    );
    assert_eq!(best["text"], "Tea is a drink. It is made of leaves and hot water.");
    assert!(best["score"].as_f64().unwrap() > 0.0 && best.get("page").is_none());
    assert!(best["line"].is_u64() && best.get("end_paragraph").is_none(), "{best}");
    let verbose = text(home.path(), &["ask", "pages.jsonl", "leaves and hot water", "--json", "--verbose"]);
    let verbose: Value = serde_json::from_str(&verbose).unwrap();
    assert!(verbose["sentences"].is_array());
    let places = &verbose["evidence"][0];
    assert_eq!((&places["line"], &places["end_paragraph"]), (&4.into(), &1.into()));
}

#[test]
fn a_generator_s_sentences_are_cited_or_marked() {
    let folder = home();
    let reader = root().join("models/minikilt-reader").display().to_string();
    let arguments = ["ask", "pages.jsonl", "where was Mira Oberlin born", "--model", &reader];
    let shown = text(folder.path(), &arguments);
    let answer = shown.lines().next().unwrap();
    assert!(answer.ends_with(']'), "{shown}");
    assert!(shown.contains("\n[1] Mira Oberlin\n"), "{shown}");
    let with_json: Vec<&str> = arguments.into_iter().chain(["--json", "-v"]).collect();
    let value: Value = serde_json::from_str(&text(folder.path(), &with_json)).unwrap();
    assert_eq!(value["answer"], answer);
    for sentence in value["sentences"].as_array().unwrap() {
        let is_cited = !sentence["citations"].as_array().unwrap().is_empty();
        assert_eq!(sentence["supported"], is_cited, "{sentence}");
    }
}

#[test]
fn lines_of_standard_input_are_questions() {
    let home = home();
    let mut child = at_home(home.path(), &["ask", "pages.jsonl", "--json", "--quiet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(b"where was Oberlin born\n\nhot water\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    let printed = String::from_utf8(output.stdout).unwrap();
    let best: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let files: Vec<&str> =
        best.iter().map(|answer| answer["evidence"][0]["file"].as_str().unwrap()).collect();
    assert_eq!(files, ["Mira Oberlin", "drinks/tea.md"]);
}

#[test]
fn a_filter_and_stages_with_models_apply() {
    let home = home();
    let first = |more: &[&str]| {
        let arguments = [&["ask", "pages.jsonl", "a drink of leaves", "--json", "--quiet"], more].concat();
        let answer: Value = serde_json::from_str(&text(home.path(), &arguments)).unwrap();
        answer["evidence"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["file"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(first(&["--filter", "lang=de"]), ["Tee"]);
    // Dense retrieval ranks every passage.
    let (encoder, reranker) = (model("encoders/sentence"), model("encoders/bert-sequence"));
    assert_eq!(first(&["--embed", &encoder]).len(), 4);
    assert_eq!(first(&["--embed", &encoder, "--rerank", &reranker, "--passages", "2"]).len(), 2);
    let (code, messages) = failure(home.path(), &["ask", "pages.jsonl", "a drink", "--filter", "tone=soft"]);
    assert!(code == 2 && messages.contains("tone"), "{messages}");
}

#[test]
fn changed_files_are_indexed_again_and_old_indexes_are_removed() {
    let home = home();
    let parts = || -> Vec<String> {
        let listed: Value = serde_json::from_str(&text(home.path(), &["indexes", "list", "--json"])).unwrap();
        let parts = listed["parts"].as_array().unwrap();
        parts.iter().map(|part| part["name"].as_str().unwrap().to_owned()).collect()
    };
    text(home.path(), &["ask", "pages.jsonl", "a drink"]);
    let before = parts();
    assert_eq!(before.len(), 2, "{before:?}");
    text(home.path(), &["ask", "pages.jsonl", "another drink"]);
    assert_eq!(parts(), before);
    fs::write(home.path().join("pages.jsonl"), PAGES.replace("hot water", "cold water")).unwrap();
    let answer = text(home.path(), &["ask", "pages.jsonl", "cold water"]);
    assert!(answer.contains("leaves and cold water"), "{answer}");
    let after = parts();
    assert!(after.len() == 2 && after.iter().all(|part| !before.contains(part)), "{before:?} {after:?}");
}

#[test]
fn cached_indexes_are_listed_shown_and_removed() {
    let home = home();
    assert!(text(home.path(), &["indexes", "list"]).starts_with("0 B in "));
    text(home.path(), &["ask", "pages.jsonl", "a drink"]);
    let listed = text(home.path(), &["indexes", "list"]);
    let name = listed.split_whitespace().next().unwrap().to_owned();
    assert!(name.starts_with("pages-") && listed.contains("pages.jsonl"), "{listed}");
    let shown = text(home.path(), &["indexes", "show", &name]);
    assert!(shown.contains("bm25-") && shown.contains("store-"), "{shown}");
    let (code, messages) = failure(home.path(), &["indexes", "remove", &name, "none"]);
    assert!(code == 2 && messages.contains(&name), "{messages}");
    assert_eq!(text(home.path(), &["indexes", "list"]), listed);
    assert!(text(home.path(), &["indexes", "remove", &name]).starts_with("removed "));
    assert!(text(home.path(), &["indexes", "list"]).starts_with("0 B in "));
    assert!(home.path().join("pages.jsonl").is_file());
}

#[test]
fn the_user_s_config_has_defaults_and_its_mistakes_are_errors() {
    let home = home();
    let folder = home.path().join("config/sporran");
    fs::create_dir_all(&folder).unwrap();
    let config = folder.join("config.toml");
    let reader = root().join("models/minikilt-reader");
    fs::write(&config, format!("model = {reader:?}\ncache = \"own\"\nthreads = 1\n")).unwrap();
    let output = run(home.path(), &["ask", "pages.jsonl", "where was Mira Oberlin born"]);
    let messages = errors(&output);
    assert!(output.status.success() && !messages.contains("no generator"), "{messages}");
    assert!(messages.contains(&folder.join("own/pages-").display().to_string()), "{messages}");
    fs::write(&config, "modle = \"a\"\n").unwrap();
    for arguments in [&["ask", "pages.jsonl", "a drink"][..], &["indexes", "list"]] {
        let (code, messages) = failure(home.path(), arguments);
        assert!(
            code == 2 && messages.contains("config.toml:1: `modle`") && messages.contains("`model`"),
            "{messages}"
        );
    }
    // Models that are not there, and folders that are no models.
    fs::create_dir_all(home.path().join("folder")).unwrap();
    for (text, expected) in [
        ("model = \"none\"\n", "config.toml:1: `model`: no model none"),
        ("threads = 1\nembedder = \"none/x\"\n", "config.toml:2: `embedder`: no model folder "),
        ("threads = 1\nreranker = \"none\"\n", "config.toml:2: `reranker`: no model none"),
        ("threads = 1\nllm.url = \"nowhere\"\n", "config.toml:2: `llm`: expected an address"),
        ("model = \"folder\"\n", "config.toml:1: `model`: no file config.json in folder"),
        ("reranker = \"folder\"\n", "config.toml:1: `reranker`: no file config.json in folder"),
    ] {
        fs::write(&config, text).unwrap();
        for arguments in [&["ask", "pages.jsonl", "a drink"][..], &["serve", "pages.jsonl", "--port", "0"]] {
            let (code, messages) = failure(home.path(), arguments);
            assert!(code == 2 && messages.contains(expected), "{text}: {messages}");
        }
    }
    // The command line is not blamed on the config.
    let (code, messages) = failure(home.path(), &["ask", "pages.jsonl", "a drink", "--rerank", "none"]);
    assert!(code == 2 && !messages.contains("config.toml"), "{messages}");
}

#[test]
fn a_client_that_asks_for_nothing_ends_the_protocol() {
    let home = home();
    // Without a standard input.
    let output = run(home.path(), &["mcp", "pages.jsonl"]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0), "{}", errors(&output));
}

#[test]
fn a_folder_that_is_no_run_is_named_with_its_content() {
    let home = home();
    fs::create_dir_all(home.path().join("notes")).unwrap();
    fs::write(home.path().join("notes/a.md"), "Tea").unwrap();
    for (arguments, file) in [
        (&["report", "notes"][..], "report.json"),
        (&["serve", "pages.jsonl", "--port", "0", "--run", "r=notes"], "manifest.json"),
    ] {
        let (code, messages) = failure(home.path(), arguments);
        let expected =
            format!("notes: expected the folder of a finished run, with {file}; found a folder with a.md");
        assert!(code == 2 && messages.contains(&expected), "{messages}");
    }
}

#[test]
fn wrong_calls_name_the_mistake() {
    let home = home();
    fs::write(home.path().join("empty.jsonl"), "").unwrap();
    for (arguments, expected) in [
        (&["ask", "none", "a drink"][..], "no file or folder none"),
        (
            &["explain", ".", "--query", "a drink"],
            "found the folder .; for documents, `sporran ask . --show-config` prints one",
        ),
        (&["ask", "pages.jsonl", " "], "found a blank text"),
        (&["ask", "pages.jsonl"], "found none in standard input"),
        (&["ask", "pages.jsonl", "a drink", "--model", "none"], "no model none"),
        (&["ask", "pages.jsonl", "a drink", "--embed", "none/model"], "none/model"),
        (&["ask", "pages.jsonl", "a drink", "--passages", "0"], "`--passages`: expected at least 1"),
        (&["ask", "empty.jsonl", "a drink"], "empty.jsonl"),
        (&["ask", "pages.jsonl", "notes/other.md"], "no file or folder notes/other.md"),
        (&["eval-set", "none", "--output", "out.jsonl"], "no file or folder none"),
        (&["eval-set", "pages.jsonl", "--output", "out.jsonl", "--count", "0"], "--count"),
        (&["eval-set", ".", "--output", "out.jsonl"], "a file to write outside of ."),
    ] {
        let (code, messages) = failure(home.path(), arguments);
        assert!(code == 2 && messages.contains(expected), "{arguments:?}: {messages}");
    }
    assert!(!home.path().join("out.jsonl").exists());
}

#[test]
fn a_test_set_measures_the_config_of_ask() {
    let home = home();
    let output = run(home.path(), &["eval-set", "pages.jsonl", "--output", "set.jsonl", "--count", "3"]);
    let messages = errors(&output);
    assert!(
        output.status.success() && output.stdout.is_empty() && messages.contains("3 synthetic questions"),
        "{messages}"
    );
    let set = fs::read_to_string(home.path().join("set.jsonl")).unwrap();
    assert!(
        set.lines().count() == 3 && set.lines().all(|line| line.contains(r#""synthetic":"sentence""#)),
        "{set}"
    );
    let config = text(home.path(), &["ask", "pages.jsonl", "--show-config"]);
    let config = config.replace("files = []", "files = [\"set.jsonl\"]");
    fs::write(home.path().join("own.toml"), &config).unwrap();
    let scores = text(home.path(), &["retrieve", "own.toml"]);
    assert!(scores.contains("set.jsonl"), "{scores}");
    // The config is a source, too.
    let answer = text(home.path(), &["ask", "own.toml", "where was Oberlin born"]);
    assert!(answer.contains("[1] Mira Oberlin"), "{answer}");
}

#[test]
fn explain_and_trace_take_a_text() {
    let home = home();
    let config = text(home.path(), &["ask", "pages.jsonl", "--show-config"]);
    fs::write(home.path().join("own.toml"), &config).unwrap();
    let shown = text(home.path(), &["explain", "own.toml", "--query", "where was Oberlin born"]);
    assert!(
        shown.starts_with("question\nwhere was Oberlin born\n") && shown.contains("Mira Oberlin (1)"),
        "{shown}"
    );
    for arguments in [
        &["retrieve", "own.toml", "--query", "hot water"][..],
        &["retrieve", "own.toml", "--trace", "--query", "hot water"],
    ] {
        let shown = text(home.path(), arguments);
        assert!(shown.starts_with("search: hot water\n") && shown.contains("Tea (2)"), "{shown}");
    }
    let (code, messages) = failure(home.path(), &["retrieve", "own.toml", "--trace"]);
    assert!(code == 2 && messages.contains("--query"), "{messages}");
    let (code, messages) = failure(home.path(), &["explain", "own.toml"]);
    assert!(code == 2 && messages.contains("--query"), "{messages}");
    let (code, messages) = failure(home.path(), &["explain", "own.toml", "--query", " "]);
    assert!(code == 2 && messages.contains("blank"), "{messages}");
    // Without task files, records have no ids.
    let (code, messages) = failure(home.path(), &["explain", "own.toml", "--id", "1"]);
    assert!(code == 2 && messages.contains("tasks"), "{messages}");
}

const FIRST: [&str; 20] = [
    "Ada", "Bruno", "Clara", "Dario", "Edith", "Fabian", "Greta", "Hugo", "Irma", "Jonas", "Karin", "Leo",
    "Mira", "Nils", "Olga", "Paul", "Rosa", "Sven", "Tilda", "Viktor",
];
const LAST: [&str; 10] =
    ["Abt", "Berg", "Castell", "Dorn", "Eichel", "Falk", "Gruber", "Holm", "Imhof", "Jansen"];
const ANIMALS: [&str; 7] = ["donkey", "parrot", "tortoise", "goat", "ferret", "llama", "heron"];

/// A person with the file about them. Each of the two names is in ten or more files, and both together in this one.
struct Person {
    name: String,
    animal: &'static str,
    file: String,
    /// The last heading above the animal, and its page in a PDF file.
    section: &'static str,
    page: Option<u64>,
}

/// Writes 20 files of each of ten formats, one for each person.
fn people(folder: &Path) -> Vec<Person> {
    let person = |at: usize| {
        let (first, last) = (at % FIRST.len(), at / FIRST.len());
        let name = format!("{} {}", FIRST[first], LAST[last]);
        let animal = ANIMALS[at * 5 % ANIMALS.len()];
        let about = format!("{name} lives in a small house.");
        let fact = format!("{name} keeps a {animal} in the garden.");
        let others = "The garden next door is that of Mrs Zobel. A friend called Quentin keeps no animal.";
        let blocks = [(1, "Person"), (0, about.as_str()), (2, "Garden"), (0, fact.as_str()), (0, others)];
        let row =
            json!({ "id": at, "title": format!("Record {at}"), "text": format!("{about} {fact} {others}") });
        let (kind, section, content) = match at % 10 {
            0 => ("txt", "", format!("{about}\n\n{fact}\n\n{others}\n").into_bytes()),
            1 => (
                "md",
                "Garden",
                format!("# Person\n\n{about}\n\n## Garden\n\n{fact}\n\n{others}\n").into_bytes(),
            ),
            2 => {
                let body =
                    format!("<h1>Person</h1><p>{about}</p><h2>Garden</h2><p>{fact}</p><p>{others}</p>");
                ("html", "Garden", format!("<html><body>{body}</body></html>").into_bytes())
            }
            3 => ("pdf", "", make::pdf(&[&[(10, &about)], &[(10, &fact), (10, others)]])),
            4 => ("docx", "Garden", make::docx(&blocks)),
            5 => ("odt", "Garden", make::odt(&blocks)),
            6 => {
                let chapter = format!("<h1>Garden</h1><p>{fact}</p><p>{others}</p>");
                ("epub", "Garden", make::epub(&[&format!("<h1>Person</h1><p>{about}</p>"), &chapter]))
            }
            7 => {
                ("csv", "", format!("id,title,text\n{at},Record {at},{about} {fact} {others}\n").into_bytes())
            }
            8 => (
                "tsv",
                "",
                format!("id\ttitle\ttext\n{at}\tRecord {at}\t{about} {fact} {others}\n").into_bytes(),
            ),
            _ => ("jsonl", "", format!("{row}\n").into_bytes()),
        };
        let file = format!("people/{}/{at}.{kind}", at % 3);
        let path = folder.join(&file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
        Person { name, animal, file, section, page: (kind == "pdf").then_some(2) }
    };
    (0..FIRST.len() * LAST.len()).map(person).collect()
}

#[test]
fn questions_about_documents_of_all_formats_find_their_place() {
    let home = tempfile::tempdir().unwrap();
    let people = people(home.path());
    let questions: Vec<String> =
        people.iter().map(|person| format!("which animal does {} keep?\n", person.name)).collect();
    fs::write(home.path().join("questions.txt"), questions.concat()).unwrap();
    let output = at_home(home.path(), &["ask", "people", "--json", "--strict"])
        .stdin(fs::File::open(home.path().join("questions.txt")).unwrap())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(errors(&output).contains("200 files, 200 pages"), "{}", errors(&output));
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(printed.lines().count(), people.len());
    for (person, line) in people.iter().zip(printed.lines()) {
        let answer: Value = serde_json::from_str(line).unwrap();
        let evidence = answer["evidence"].as_array().unwrap();
        assert!(evidence.len() <= 5);
        let holds = |item: &&Value| {
            item["file"] == person.file.as_str()
                && item["text"]
                    .as_str()
                    .unwrap()
                    .contains(&format!("{} keeps a {}", person.name, person.animal))
        };
        let found = evidence.iter().find(holds);
        let found = found.unwrap_or_else(|| panic!("{} is not in the evidence: {line}", person.file));
        assert!(found["section"].as_str().unwrap().ends_with(person.section), "{line}");
        assert_eq!(found.get("page").and_then(Value::as_u64), person.page, "{line}");
    }
}

#[test]
fn unreadable_files_are_told_and_strict_fails() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("notes");
    fs::create_dir(&folder).unwrap();
    let (code, messages) = failure(home.path(), &["ask", "notes", "what is tea?"]);
    assert!(code == 2 && messages.contains("notes"), "{messages}");
    fs::write(folder.join("broken.pdf"), b"%PDF-1.4\nnothing").unwrap();
    let (code, messages) = failure(home.path(), &["ask", "notes", "what is tea?"]);
    assert!(code == 2 && messages.contains("broken.pdf"), "{messages}");
    // Sources without pages leave nothing in the cache.
    assert!(text(home.path(), &["indexes", "list"]).starts_with("0 B in "));
    assert_eq!(fs::read_dir(home.path().join("cache/sporran/indexes")).unwrap().count(), 0);
    fs::write(folder.join("tea.md"), "# Tea\n\nTea is a drink of leaves.\n").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink("..", folder.join("around")).unwrap();
    // The second call reads nothing again, and tells the same.
    for _ in 0..2 {
        let output = run(home.path(), &["ask", "notes", "what is tea?"]);
        let messages = errors(&output);
        assert!(output.status.success() && messages.contains("1 not read"), "{messages}");
        assert!(String::from_utf8_lossy(&output.stdout).contains(">>>Tea is a drink of leaves.<<<"));
    }
    let (code, messages) = failure(home.path(), &["ask", "notes", "what is tea?", "--strict"]);
    assert!(code == 2 && messages.contains("broken.pdf"), "{messages}");
    fs::remove_file(folder.join("broken.pdf")).unwrap();
    assert!(run(home.path(), &["ask", "notes", "what is tea?", "--strict"]).status.success());
}
