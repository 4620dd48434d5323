//! Dense retrieval with an encoder at an HTTP endpoint: `kind = "remote"`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sporran_config::Document;
use sporran_kilt::{PassageId, Template, hash_json};
use sporran_remote::{Call, Client, Endpoint, RequestOptions, Route, check_endpoint};

use super::{
    Dense, Embeddings, Encoder, Index, IndexOptions, Origin, Progress, Similarity, distance, part,
    retriever::{NewVectors, passage_template, portions, query_template},
};
use crate::{
    PassageScorer, Result, Retriever,
    kind::RetrieverKind,
    site::{Items, NewIndex, NewPart, PartSite, Site, part_name, passages},
};

/// `kind = "remote"`: dense retrieval with an encoder at an HTTP endpoint in the form of OpenAI's API (vLLM, llama.cpp,
/// Ollama, TEI). The vectors of passages are in an index on disk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RemoteDenseOptions {
    /// The address, such as `http://localhost:8000/v1`. One without a path gets `/v1`.
    pub base_url: String,
    /// The name of the encoder at the endpoint.
    pub model: String,
    /// The name of the environment variable that has the key; none for an endpoint without keys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// The length of the vectors, where the endpoint can shorten them. The default is the model's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub dimensions: Option<usize>,
    /// The encoded text of a query, with `{text}`: `query: {text}`. The default is the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query_template: Option<String>,
    /// The encoded text of a passage, with `{title}` and `{text}`. The default is `{title} {text}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passage_template: Option<String>,
    /// The similarity of vectors: `cosine`, `inner-product`, `euclidean` or `manhattan`.
    #[serde(default = "similarity")]
    pub similarity: Similarity,
    /// Texts of a request, at most.
    #[serde(default = "batch_size")]
    #[schemars(range(min = 1))]
    pub batch_size: usize,
    /// `[retriever.requests]`: concurrency, repetitions, limits, the cache of responses, and prices.
    #[serde(default)]
    pub requests: RequestOptions,
    /// The index over the passages' vectors.
    #[serde(default)]
    pub index: IndexOptions,
}

fn similarity() -> Similarity {
    Similarity::Cosine
}

fn batch_size() -> usize {
    32
}

/// An encoder at an endpoint.
pub struct RemoteEncoder {
    client: Client,
    dimensions: Option<usize>,
    passage_template: Option<Template>,
    batch_size: usize,
    dim: usize,
}

impl RemoteEncoder {
    /// Opens a client. Encodes a word to learn the length of the vectors, unless the options give it.
    ///
    /// # Errors
    /// [`crate::Error::Remote`] for an option that cannot be used, a variable without a key, and an endpoint without a usable
    /// answer; [`crate::Error::Option`] for a wrong template.
    pub fn open(options: &RemoteDenseOptions) -> Result<Self> {
        let client = Client::open(&Endpoint {
            base_url: &options.base_url,
            model: &options.model,
            api_key_env: options.api_key_env.as_deref(),
            requests: &options.requests,
            seed: 0,
        })?;
        let passage_template = passage_template(options.passage_template.as_deref())?;
        let batch_size = options.batch_size.max(1);
        let dimensions = options.dimensions;
        let mut encoder =
            Self { client, dimensions, passage_template, batch_size, dim: dimensions.unwrap_or(0) };
        if dimensions.is_none() {
            encoder.dim = encoder.vectors(&["word"])?.first().map_or(0, Vec::len);
        }
        Ok(encoder)
    }

    /// The vectors of texts, several requests at a time.
    fn vectors(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        let batches: Vec<&[&str]> = texts.chunks(self.batch_size).collect();
        let found = self.client.each(batches.len(), |at, stop| {
            let batch = batches[at];
            let mut body =
                json!({ "model": self.client.model(), "input": batch, "encoding_format": "float" });
            if let Some(dimensions) = self.dimensions {
                body["dimensions"] = dimensions.into();
            }
            let call = Call { route: Route::Embeddings, body };
            self.client.ask(&call, &|response| read(response, batch.len(), self.dim), stop)
        })?;
        Ok(found.concat())
    }
}

/// Reads the vectors of `count` texts, which come in any order. `dim` is their length, 0 where it is not known.
///
/// # Errors
/// What was expected and found, where a text has no vector, several, or one of another length or with other values than
/// numbers.
fn read(response: &Value, count: usize, dim: usize) -> Result<Vec<Vec<f32>>, String> {
    let data = response["data"].as_array().ok_or("`data`: expected a list of vectors, found none")?;
    if data.len() != count {
        return Err(format!("`data`: expected a vector for each of {count} texts, found {}", data.len()));
    }
    let mut vectors: Vec<Option<Vec<f32>>> = vec![None; count];
    for (at, entry) in data.iter().enumerate() {
        let index = match &entry["index"] {
            Value::Null => Some(at),
            index => index.as_u64().and_then(|index| usize::try_from(index).ok()),
        };
        let Some(place) = index.and_then(|index| vectors.get_mut(index)) else {
            let found = &entry["index"];
            return Err(format!(
                "`data[{at}].index`: expected the number of one of {count} texts, found {found}"
            ));
        };
        let values = entry["embedding"]
            .as_array()
            .ok_or_else(|| format!("`data[{at}].embedding`: expected a list of numbers, found none"))?;
        let value =
            |value: &Value| value.as_f64().map(|value| value as f32).filter(|value| value.is_finite());
        let vector: Option<Vec<f32>> = values.iter().map(value).collect();
        let vector = vector
            .filter(|vector| !vector.is_empty())
            .ok_or_else(|| format!("`data[{at}].embedding`: expected finite numbers, found other values"))?;
        if dim > 0 && vector.len() != dim {
            let found = vector.len();
            return Err(format!("`data[{at}].embedding`: expected {dim} numbers, found {found}"));
        }
        if place.replace(vector).is_some() {
            return Err(format!(
                "`data[{at}].index`: expected each text once, found {} twice",
                entry["index"]
            ));
        }
    }
    // As many different places as there are texts: all.
    Ok(vectors.into_iter().flatten().collect())
}

impl Encoder for RemoteEncoder {
    fn dim(&self) -> usize {
        self.dim
    }

    fn encode(&self, texts: &[&str]) -> Result<Embeddings> {
        Embeddings::new(self.dim, self.vectors(texts)?.concat())
    }

    fn encode_passages(&self, passages: &[(&str, &str)]) -> Result<Embeddings> {
        let text = |&(title, text): &(&str, &str)| match &self.passage_template {
            Some(template) => template.fill(&[title, text]),
            None if title.is_empty() => text.to_owned(),
            None => format!("{title} {text}"),
        };
        let texts: Vec<String> = passages.iter().map(text).collect();
        self.encode(&texts.iter().map(String::as_str).collect::<Vec<_>>())
    }
}

impl RemoteDenseOptions {
    /// BLAKE3 of what the vectors of passages depend on.
    fn encoder_hash(&self) -> String {
        // Every option is listed, so a new one does not compile until it is handled.
        let Self {
            base_url,
            model,
            dimensions,
            passage_template,
            similarity,
            // Affects queries only.
            query_template: _,
            // Do not affect vectors.
            api_key_env: _,
            batch_size: _,
            requests: _,
            // Affects the index only.
            index: _,
        } = self;
        hash_json(&json!({
            "base-url": base_url,
            "model": model,
            "dimensions": dimensions,
            "passage-template": passage_template,
            "similarity": similarity,
        }))
    }

    fn open_index(&self, site: &mut dyn Site) -> Result<Dense<RemoteEncoder>> {
        let (encoder, encoder_hash, store) =
            (RemoteEncoder::open(self)?, self.encoder_hash(), site.store().clone());
        let origin = Origin { encoder_hash: &encoder_hash, passages_hash: store.hash() };
        let index = NewIndex {
            kind: "remote",
            key: hash_json(&("remote", &encoder_hash, self.index.built(), store.hash())),
            items: Items::Passages,
        };
        let parts = site.parts(&part_name("vectors", &encoder_hash));
        let folder = site.index(index, &mut |place, advance| {
            let mut progress = |progress| {
                if let Progress::Encoded(done) = progress {
                    advance(done);
                }
            };
            if let Some(parts) = &parts {
                let parts = (parts.as_slice(), store.len());
                return part::merge(&self.index, self.similarity, origin, parts, place, &mut progress);
            }
            let vectors = NewVectors {
                index: &self.index,
                similarity: self.similarity,
                dim: encoder.dim(),
                origin,
                encode: &|passages| encoder.encode_passages(passages),
            };
            vectors.build(|from: PassageId| passages(&store, from), place, &mut progress)
        })?;
        site.depends_on("search", None, hash_json(self));
        let opened = Index::open(&self.index, self.similarity, origin, &folder)?;
        let template = query_template(self.query_template.as_deref())?;
        let dense = Dense::over(encoder, template, opened)?;
        dense.report(folder, site);
        Ok(dense)
    }
}

impl RetrieverKind for RemoteDenseOptions {
    fn check(&self, key: &str, document: &mut Document<'_>) {
        check_endpoint(key, (&self.base_url, &self.model, self.api_key_env.as_deref()), document);
        let query = query_template(self.query_template.as_deref()).map(|_| ());
        let passage = passage_template(self.passage_template.as_deref()).map(|_| ());
        for error in [query, passage, self.index.check()].into_iter().filter_map(Result::err) {
            document.report_key(key, error.to_string());
        }
        if let Err(error) = distance::check(&self.index, self.similarity) {
            document.report_key(&format!("{key}.index"), error.to_string());
        }
    }

    fn open(&self, site: &mut dyn Site) -> Result<Box<dyn Retriever>> {
        Ok(Box::new(self.open_index(site)?))
    }

    fn build_parts(&self, site: &mut dyn PartSite) -> Result<()> {
        let store = site.whole()?;
        let range = site.shard().range(store.len(), Index::PORTION);
        if range.is_empty() {
            return Ok(());
        }
        let (encoder, encoder_hash) = (RemoteEncoder::open(self)?, self.encoder_hash());
        let origin = Origin { encoder_hash: &encoder_hash, passages_hash: store.hash() };
        let name = part_name("vectors", &encoder_hash);
        let key = hash_json(&(&name, &encoder_hash, store.hash(), &range));
        let new = NewPart { name, key, passages: range.len() };
        site.part(new, &mut |place, advance| {
            let mut progress = |progress| {
                if let Progress::Encoded(done) = progress {
                    advance(done);
                }
            };
            let vectors = |from: u32| {
                let first = range.start as u32 + from;
                let passages = passages(&store, PassageId(first)).take(range.end - first as usize);
                portions(passages, first, |passages| encoder.encode_passages(passages))
            };
            part::write(encoder.dim(), origin, &range, vectors, place, &mut progress)
        })
    }

    fn build_vectors(&self, site: &mut dyn Site) -> Result<usize> {
        self.open_index(site).map(|_| 1)
    }

    fn open_scorer(&self, site: &mut dyn Site) -> Result<Option<Box<dyn PassageScorer>>> {
        Ok(Some(Box::new(self.open_index(site)?)))
    }
}

#[cfg(test)]
#[path = "../../../remote/tests/it/server.rs"]
mod server;

#[cfg(test)]
mod tests {
    use super::{
        server::{Reply, Server},
        *,
    };

    fn options(url: &str) -> RemoteDenseOptions {
        let json =
            json!({ "base-url": url, "model": "m", "batch-size": 2, "requests": { "use-cache": false } });
        serde_json::from_value(json).unwrap()
    }

    /// The vector of a text: its length, and 1.
    fn reply(input: &Value) -> Value {
        let entry = |(index, text): (usize, &Value)| json!({ "index": index, "embedding": [text.as_str().unwrap().len(), 1] });
        let data: Vec<Value> = input.as_array().unwrap().iter().enumerate().map(entry).rev().collect();
        json!({ "data": data })
    }

    #[test]
    fn vectors_come_back_to_their_texts_in_any_order() {
        let server = Server::start(|_, asked| Reply::Json(reply(&asked.body["input"])));
        let encoder = RemoteEncoder::open(&options(&server.url)).unwrap();
        assert_eq!(encoder.dim(), 2);
        let found = encoder.encode(&["a", "aaa", "", "aa", "aaaa"]).unwrap();
        assert_eq!(found.values(), [1.0, 1.0, 3.0, 1.0, 0.0, 1.0, 2.0, 1.0, 4.0, 1.0]);
        let found = encoder.encode_passages(&[("ab", "c"), ("", "d")]).unwrap();
        assert_eq!(found.values(), [4.0, 1.0, 1.0, 1.0]);
        // One word for the length, three batches of texts, one of passages.
        assert_eq!(server.asked().len(), 5);
        assert_eq!(server.asked()[4].body["input"], json!(["ab c", "d"]));
        let shorter = RemoteDenseOptions {
            dimensions: Some(2),
            passage_template: Some("p: {text} ({title})".into()),
            ..options(&server.url)
        };
        let encoder = RemoteEncoder::open(&shorter).unwrap();
        assert_eq!(server.asked().len(), 5);
        encoder.encode_passages(&[("T", "x")]).unwrap();
        let body = &server.asked()[5].body;
        assert_eq!((&body["dimensions"], &body["input"]), (&json!(2), &json!(["p: x (T)"])));
    }

    #[test]
    fn vectors_that_are_missing_double_or_no_numbers_are_errors() {
        let entry = |index: i64| json!({ "index": index, "embedding": [0.5, 1] });
        let of = |data: Value| read(&json!({ "data": data }), 2, 2);
        assert_eq!(of(json!([entry(1), entry(0)])).unwrap().len(), 2);
        for (data, expected) in [
            (json!([entry(0)]), "`data`: expected a vector for each of 2 texts, found 1"),
            (json!([entry(0), entry(1), entry(1)]), "`data`: expected a vector for each of 2 texts, found 3"),
            (json!([entry(0), entry(0)]), "`data[1].index`: expected each text once, found 0 twice"),
            (json!([entry(0), entry(7)]), "`data[1].index`: expected the number of one of 2 texts, found 7"),
            (
                json!([entry(0), { "index": 1 }]),
                "`data[1].embedding`: expected a list of numbers, found none",
            ),
            (
                json!([entry(0), { "index": 1, "embedding": [null, 1] }]),
                "`data[1].embedding`: expected finite numbers, found other values",
            ),
            (
                json!([entry(0), { "index": 1, "embedding": [1e300, 1] }]),
                "`data[1].embedding`: expected finite numbers, found other values",
            ),
            (
                json!([entry(0), { "index": 1, "embedding": [1] }]),
                "`data[1].embedding`: expected 2 numbers, found 1",
            ),
        ] {
            assert_eq!(of(data), Err(expected.to_owned()));
        }
    }
}
