//! What the page shows besides answers.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State as Shared},
    http::{HeaderName, header},
    response::IntoResponse,
};
use serde::Deserialize;
use sporran_pipeline::review::{ExampleFilter, Examples};

use crate::{
    Cause, Failure, State,
    browse::{
        BrowseSummary, Completion, Completions, DocumentPlace, Entities, EntityPage, PlacedDocument,
        PlacedDocuments, RunReport,
    },
    http::{Api, Parameter, Queries},
    work::aside,
};

/// The documents or entities of a list that sets no limit.
const LIMIT: usize = 50;
/// What a browser may load on the page of a run's report, which has its style in itself.
const REPORT_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const fn text(name: &'static str, summary: &'static str) -> Parameter {
    Parameter { name, kind: "string", required: false, summary }
}

const fn needed(name: &'static str, summary: &'static str) -> Parameter {
    Parameter { required: true, ..text(name, summary) }
}

const fn number(name: &'static str, summary: &'static str) -> Parameter {
    Parameter { kind: "integer", ..text(name, summary) }
}

const MOUNT: Parameter = text("mount", "The mount; the first one by default");
const OFFSET: Parameter = number("offset", "The number of items to leave out");
const MOST: Parameter = number("limit", "The largest number of items");
const RUN: Parameter = needed("run", "The name of a run");
const KB: Parameter = needed("kb", "The name of a knowledge base");
const VERDICT: &str = "`right` or `wrong`";

pub(super) fn add(api: Api<Arc<State>>) -> Api<Arc<State>> {
    api.group("Browse")
        .get::<BrowseSummary, _>("/browse", "The runs and the knowledge bases", &[], summary)
        .get::<PlacedDocuments, _>(
            "/browse/documents",
            "The documents of an index",
            &[MOUNT, OFFSET, MOST],
            documents,
        )
        .get::<PlacedDocument, _>(
            "/browse/document",
            "A document with a marked passage and a marked sentence",
            &[
                MOUNT,
                needed("id", "The id of a document or a passage"),
                number("paragraph", "The paragraph in which the passage starts, for the id of a document"),
                number("start", "Its first character in that paragraph"),
                number("from", "The first character of the sentence, in the text of the passage"),
                number("to", "The character after its last one"),
            ],
            document,
        )
        .get::<RunReport, _>("/browse/runs/{run}", "The cost and the scores of a run", &[RUN], run)
        .get::<Examples, _>(
            "/browse/runs/{run}/examples",
            "The predictions of a run, with gold answers and evidence",
            &[
                RUN,
                text("file", "The name of a file of predictions"),
                text("answer", VERDICT),
                text("evidence", VERDICT),
                text("text", "Words of the input, the answer or the id"),
                OFFSET,
                MOST,
            ],
            examples,
        )
        .file(
            "/browse/runs/{run}/report",
            "text/html; charset=utf-8",
            "The page of a run's report",
            &[RUN],
            report,
        )
        .get::<Entities, _>(
            "/browse/kb/{kb}/entities",
            "The entities whose names have the words",
            &[KB, text("query", "The words"), OFFSET, MOST],
            entities,
        )
        .get::<EntityPage, _>(
            "/browse/kb/{kb}/entity",
            "An entity with its triples",
            &[KB, needed("id", "The id of an entity")],
            entity,
        )
        .get::<Completions, _>(
            "/browse/kb/{kb}/complete",
            "The entities that rules predict for a triple",
            &[
                KB,
                needed("relation", "The id of the relation"),
                text("subject", "The id of the subject"),
                text("object", "The id of the object, without a subject"),
            ],
            complete,
        )
}

async fn summary(Shared(state): Shared<Arc<State>>) -> Result<Json<BrowseSummary>, Failure> {
    Ok(Json(aside(move || Ok(state.browse().summary())).await?))
}

#[derive(Deserialize)]
struct Listing {
    mount: Option<String>,
    #[serde(default)]
    query: String,
    #[serde(default)]
    offset: usize,
    limit: Option<usize>,
}

async fn documents(
    Shared(state): Shared<Arc<State>>,
    Queries(Listing { mount, offset, limit, .. }): Queries<Listing>,
) -> Result<Json<PlacedDocuments>, Failure> {
    let found = aside(move || {
        let mounts = state.mounts();
        Ok(PlacedDocuments::of(mounts.searching(mount.as_deref())?.index()?, offset, limit.unwrap_or(LIMIT)))
    });
    Ok(Json(found.await?))
}

async fn document(
    Shared(state): Shared<Arc<State>>,
    Queries(place): Queries<DocumentPlace>,
) -> Result<Json<PlacedDocument>, Failure> {
    let found = aside(move || {
        let mounts = state.mounts();
        PlacedDocument::of(mounts.searching(place.mount.as_deref())?.index()?, &place)
    });
    Ok(Json(found.await?))
}

async fn run(
    Shared(state): Shared<Arc<State>>,
    Path(name): Path<String>,
) -> Result<Json<RunReport>, Failure> {
    Ok(Json(aside(move || state.run_report(&name)).await?))
}

async fn examples(
    Shared(state): Shared<Arc<State>>,
    Path(name): Path<String>,
    Queries(filter): Queries<ExampleFilter>,
) -> Result<Json<Examples>, Failure> {
    Ok(Json(aside(move || state.browse().run(&name)?.examples(&filter)).await?))
}

async fn report(
    Shared(state): Shared<Arc<State>>,
    Path(name): Path<String>,
) -> Result<impl IntoResponse, Failure> {
    let page = aside(move || {
        let missing =
            || Failure::new(Cause::NotFound, format!("the run `{name}` has no page with its report"));
        state.browse().run(&name)?.report_page()?.ok_or_else(missing)
    });
    let headers: [(HeaderName, &str); 2] = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, REPORT_POLICY),
    ];
    Ok((headers, page.await?))
}

async fn entities(
    Shared(state): Shared<Arc<State>>,
    Path(name): Path<String>,
    Queries(Listing { query, offset, limit, .. }): Queries<Listing>,
) -> Result<Json<Entities>, Failure> {
    let found =
        aside(move || Ok(state.browse().knowledge(&name)?.entities(&query, offset, limit.unwrap_or(LIMIT))));
    Ok(Json(found.await?))
}

#[derive(Deserialize)]
struct Id {
    id: String,
}

async fn entity(
    Shared(state): Shared<Arc<State>>,
    Path(name): Path<String>,
    Queries(Id { id }): Queries<Id>,
) -> Result<Json<EntityPage>, Failure> {
    Ok(Json(aside(move || state.browse().knowledge(&name)?.page(&id)).await?))
}

async fn complete(
    Shared(state): Shared<Arc<State>>,
    Path(name): Path<String>,
    Queries(completion): Queries<Completion>,
) -> Result<Json<Completions>, Failure> {
    Ok(Json(aside(move || state.browse().knowledge(&name)?.complete(completion)).await?))
}
