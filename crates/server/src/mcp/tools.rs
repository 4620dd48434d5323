//! The tools.

use std::sync::Arc;

use rmcp::{
    ErrorData,
    model::{CallToolRequestParams, CallToolResult, ContentBlock, JsonObject, Tool, ToolAnnotations},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::Value;
use sporran_kilt::{counted, jsonl::plain_json};

use crate::{
    Cause, Failure, Limits, State,
    browse::RunReport,
    http::Noted,
    mounts::{
        AnswerRequest, AnswerResponse, DocumentResponse, FactsResponse, Mount, MountSummary, SearchResponse,
        TextsRequest,
    },
    work::aside,
};

/// The hits of a search that sets no number.
const HITS: usize = 5;
/// The most hits of a search: an agent reads them all.
const MOST: usize = 100;

/// A search for passages.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchInput {
    /// The words to search for.
    query: String,
    /// The name of an index; the first one by default.
    #[serde(default)]
    index: Option<String>,
    /// The number of passages; 5 by default.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    hits: Option<usize>,
}

/// A document or a passage to read.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DocumentInput {
    /// The id of a document or a passage, as `search` and `answer` give them.
    id: String,
    /// The name of an index; the first one by default.
    #[serde(default)]
    index: Option<String>,
}

/// A question.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AnswerInput {
    /// The question.
    question: String,
    /// The name of a mount; the first one with a generator by default, or else the first one with an index, or else the first one
    /// of questions over a knowledge base.
    #[serde(default)]
    mount: Option<String>,
    /// The document that the question is about, for a mount of questions over a knowledge base.
    #[serde(default)]
    document: Option<String>,
    /// The ids of the entities that the question is about, for a mount whose model is given them.
    #[serde(default)]
    topics: Vec<String>,
    /// The number of passages in the answer's provenance, or of entities; 5 passages by default.
    #[serde(default)]
    #[schemars(range(min = 1, max = 100))]
    top: Option<usize>,
}

/// A text to extract facts from.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct FactsInput {
    /// The text.
    text: String,
    /// The name of an extractor; the first one by default.
    #[serde(default)]
    mount: Option<String>,
}

/// A run to evaluate.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct RunInput {
    /// The name of a run.
    run: String,
}

/// The tools for what is mounted.
pub(super) fn list(state: &State) -> Vec<Tool> {
    let mounts = state.mounts();
    let can = |ability: &str| -> Vec<String> {
        let summaries = mounts.all().iter().map(Mount::summary);
        summaries.filter(|mount| mount.abilities.contains(&ability)).map(|mount| called(&mount)).collect()
    };
    let mut tools = Vec::new();
    let (indexes, generators) = (can("search"), can("answer"));
    if !indexes.is_empty() {
        let text = "Searches for passages. Returns passages with ids, places and scores, best first.";
        tools.push(tool::<SearchInput, SearchResponse>("search", "Search", text, &indexes));
        let text = "Reads a whole document, or one passage of it, by its id.";
        tools.push(tool::<DocumentInput, DocumentResponse>(
            "get_document",
            "Read a document",
            text,
            &indexes,
        ));
    }
    let answering: Vec<String> = match generators.is_empty() {
        true => indexes,
        false => generators.into_iter().chain(indexes).fold(Vec::new(), |mut all, name| {
            if !all.contains(&name) {
                all.push(name);
            }
            all
        }),
    };
    let answering: Vec<String> = answering.into_iter().chain(can("reason")).collect();
    if !answering.is_empty() {
        let text = "Answers a question with the passages that it rests on. `is_generated` tells whether a generator wrote \
                    `answer`; without one, the marked sentences of `provenance` are the answer. A mount of questions over a \
                    knowledge base gives `entities` with the triples that support them.";
        tools.push(tool::<AnswerInput, AnswerResponse>("answer", "Answer a question", text, &answering));
    }
    let extractors = can("facts");
    if !extractors.is_empty() {
        let text = "Extracts facts from a text: subject, relation and object with their characters and a confidence.";
        tools.push(tool::<FactsInput, FactsResponse>("extract_facts", "Extract facts", text, &extractors));
    }
    let runs: Vec<String> = state.browse().runs().iter().map(|run| format!("`{}`", run.name())).collect();
    if !runs.is_empty() {
        let text = "The scores of a finished run, each with its 95 % interval, and the cost of the run.";
        tools.push(tool::<RunInput, RunReport>("evaluate_run", "Evaluate a run", text, &runs));
    }
    tools
}

/// A mount in the description of a tool.
fn called(mount: &MountSummary) -> String {
    match mount.documents {
        Some(count) => format!("`{}` ({})", mount.name, counted(count as u64, "document")),
        None => format!("`{}`", mount.name),
    }
}

/// A tool whose input and output are types.
fn tool<I: JsonSchema + 'static, O: JsonSchema + 'static>(
    name: &'static str,
    title: &str,
    text: &str,
    names: &[String],
) -> Tool {
    let description = format!("{text} There are: {}.", names.join(", "));
    let annotations = ToolAnnotations::new().read_only(true).open_world(false);
    Tool::new(name, description, JsonObject::new())
        .with_input_schema::<I>()
        .with_output_schema::<O>()
        .with_title(title)
        .with_annotations(annotations)
}

/// Calls a tool. What is wrong with a call is a result, so that the agent can correct it; it is noted for the log too.
pub(super) async fn call(
    state: &Arc<State>,
    request: CallToolRequestParams,
    noted: &Noted,
) -> Result<CallToolResult, ErrorData> {
    let arguments = request.arguments.unwrap_or_default();
    let found = match &*request.name {
        "search" => search(state, arguments).await,
        "get_document" => document(state, arguments).await,
        "answer" => answer(state, arguments).await,
        "extract_facts" => facts(state, arguments).await,
        "evaluate_run" => evaluate(state, arguments).await,
        other => return Err(ErrorData::invalid_params(format!("there is no tool `{other}`"), None)),
    };
    Ok(match found {
        Ok(value) => CallToolResult::structured(value),
        Err(Failure { message, detail, .. }) => {
            noted.error(detail.unwrap_or_else(|| message.clone()));
            CallToolResult::error(vec![ContentBlock::text(message)])
        }
    })
}

/// A number of passages, all of which an agent reads.
fn few(state: &State, field: &str, wanted: Option<usize>) -> Result<Option<usize>, Failure> {
    let limits = Limits { hits: state.limits().hits.min(MOST), ..*state.limits() };
    limits.checked(field, wanted)
}

async fn search(state: &State, arguments: JsonObject) -> Result<Value, Failure> {
    let SearchInput { query, index, hits } = input(arguments)?;
    let hits = few(state, "hits", hits)?.unwrap_or(state.limits().hits.min(HITS));
    let mounts = state.mounts();
    output(&mounts.searching(index.as_deref())?.search(query, hits).await?)
}

async fn document(state: &Arc<State>, arguments: JsonObject) -> Result<Value, Failure> {
    let DocumentInput { id, index } = input(arguments)?;
    let mounts = state.mounts();
    let answering = Arc::clone(mounts.searching(index.as_deref())?);
    output(&aside(move || answering.document(&id)).await?)
}

async fn answer(state: &State, arguments: JsonObject) -> Result<Value, Failure> {
    let AnswerInput { question, mount, document, topics, top } = input(arguments)?;
    let top = few(state, "top", top)?;
    let request = AnswerRequest { question, mount, document, topics, top, trace: false };
    output(&state.mounts().answer(&request).await?)
}

async fn facts(state: &State, arguments: JsonObject) -> Result<Value, Failure> {
    let FactsInput { text, mount } = input(arguments)?;
    let mounts = state.mounts();
    let request = TextsRequest { text: Some(text), texts: Vec::new(), mount };
    output(&mounts.extracting(request.mount.as_deref())?.facts(&request).await?)
}

async fn evaluate(state: &Arc<State>, arguments: JsonObject) -> Result<Value, Failure> {
    let RunInput { run } = input(arguments)?;
    let state = Arc::clone(state);
    // The config is long, and no score.
    let mut report = aside(move || state.run_report(&run)).await?;
    report.overview.config = None;
    output(&report)
}

fn input<T: DeserializeOwned>(arguments: JsonObject) -> Result<T, Failure> {
    serde_path_to_error::deserialize(Value::Object(arguments)).map_err(|error| {
        let field = error.path().to_string();
        let words = plain_json(&error.inner().to_string());
        match field.as_str() {
            "." => Failure::new(Cause::Invalid, words),
            field => Failure::invalid(field, format!("`{field}`: {words}")),
        }
    })
}

fn output(value: &impl Serialize) -> Result<Value, Failure> {
    serde_json::to_value(value).map_err(Failure::internal)
}
