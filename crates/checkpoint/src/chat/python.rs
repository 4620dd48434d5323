//! What Jinja2 and Python's texts have and MiniJinja lacks or does otherwise.

use minijinja::{
    Environment, Error, ErrorKind, State,
    value::{Rest, Value, ValueKind, from_args},
};
use minijinja_contrib::pycompat::unknown_method_callback;

/// Adds the tests, filters, functions and methods to the environment of templates.
pub(super) fn add(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(method);
    environment.add_test("iterable", is_iterable);
    environment.add_test("sequence", is_sequence);
    environment.add_test("callable", is_callable);
    environment.add_filter("wordcount", word_count);
    environment.add_filter("center", center);
    environment.add_filter("xmlattr", xml_attributes);
    environment.add_function("cycler", |items: Rest<Value>| minijinja_contrib::globals::cycler(items.0));
    environment.add_function("joiner", |separator: Option<Value>| {
        minijinja_contrib::globals::joiner(Some(separator.unwrap_or_else(|| Value::from(", "))))
    });
}

/// None is not iterable; MiniJinja takes it for an empty list.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// Everything that has a length and items, as texts, maps and undefined values do.
fn is_sequence(value: &Value) -> bool {
    match value.kind() {
        ValueKind::String | ValueKind::Bytes | ValueKind::Seq | ValueKind::Map | ValueKind::Undefined => true,
        ValueKind::Iterable => value.len().is_some(),
        _ => false,
    }
}

/// Functions and macros, which have no other kind, and undefined values, whose call Jinja2 refuses later.
fn is_callable(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Plain | ValueKind::Undefined)
}

/// The number of runs of letters, digits and underscores.
fn word_count(text: String) -> usize {
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    text.split(|character| !is_word(character)).filter(|word| !word.is_empty()).count()
}

/// The text in the middle of `width` characters.
fn center(state: &mut State, text: String, width: Option<usize>) -> Result<String, Error> {
    padded(state, &text, width.unwrap_or(80), ' ', centred)
}

/// The number of characters before a text that is centred: Python puts it to the right where the width is odd.
fn centred(width: usize, missing: usize) -> usize {
    missing / 2 + (missing & width & 1)
}

/// A map as attributes of XML, without those that are none.
fn xml_attributes(map: Value, begins_with_space: Option<bool>) -> Result<Value, Error> {
    let mut parts = Vec::new();
    for key in map.try_iter()? {
        let value = map.get_item(&key)?;
        if value.is_none() || value.is_undefined() {
            continue;
        }
        let key = key.to_string();
        if key.contains([' ', '\t', '\n', '\r', '\x0c', '/', '>', '=']) {
            let problem = format!("xmlattr: expected a key without spaces, `/`, `>` and `=`, found `{key}`");
            return Err(Error::new(ErrorKind::InvalidOperation, problem));
        }
        parts.push(format!("{}=\"{}\"", escaped(&key), escaped(&value.to_string())));
    }
    let text = parts.join(" ");
    let spaced = begins_with_space.unwrap_or(true) && !text.is_empty();
    Ok(Value::from_safe_string(if spaced { format!(" {text}") } else { text }))
}

/// A text for XML, as MarkupSafe writes it.
fn escaped(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('>', "&gt;").replace('<', "&lt;");
    text.replace('\'', "&#39;").replace('"', "&#34;")
}

/// The methods of Python that MiniJinja's own collection lacks, and then that collection.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => match text_method(state, text, name, args)? {
            Some(result) => Ok(result),
            None => unknown_method_callback(state, value, name, args),
        },
        None => unknown_method_callback(state, value, name, args),
    }
}

/// A method of a text; none where it is not one of these.
fn text_method(state: &mut State, text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let one = || from_args::<(&str,)>(args).map(|(part,)| part);
    let value = match name {
        "rsplit" => {
            let (separator, most): (Option<&str>, Option<i64>) = from_args(args)?;
            // A negative number of splits is none at all.
            rsplit(text, separator, most.and_then(|most| usize::try_from(most).ok()))?
        }
        "partition" => {
            let separator = separator(one()?)?;
            let (before, after) = text.split_once(separator).map_or((text, None), |(a, b)| (a, Some(b)));
            texts([before, after.map_or("", |_| separator), after.unwrap_or("")])
        }
        "rpartition" => {
            let separator = separator(one()?)?;
            let (before, after) = text.rsplit_once(separator).map_or((None, text), |(a, b)| (Some(a), b));
            texts([before.unwrap_or(""), before.map_or("", |_| separator), after])
        }
        "removeprefix" => text.strip_prefix(one()?).unwrap_or(text).into(),
        "removesuffix" => text.strip_suffix(one()?).unwrap_or(text).into(),
        "swapcase" => {
            let swapped = |character: char| -> String {
                let upper = character.is_uppercase();
                if upper { character.to_lowercase().collect() } else { character.to_uppercase().collect() }
            };
            text.chars().map(swapped).collect::<String>().into()
        }
        // Unicode's full folding differs from lowercasing for few letters; of those of living languages, in ß and final sigma.
        "casefold" => text.to_lowercase().replace('ß', "ss").replace('ς', "σ").into(),
        "index" | "rindex" => {
            let part = one()?;
            let found = if name == "index" { text.find(part) } else { text.rfind(part) };
            let Some(found) = found else {
                return Err(Error::new(ErrorKind::InvalidOperation, "substring not found"));
            };
            text[..found].chars().count().into()
        }
        "zfill" => {
            let (width,): (usize,) = from_args(args)?;
            let (sign, digits) = match text.starts_with(['+', '-']) {
                true => text.split_at(1),
                false => ("", text),
            };
            let digits = padded(state, digits, width.saturating_sub(sign.len()), '0', |_, missing| missing)?;
            format!("{sign}{digits}").into()
        }
        "center" | "ljust" | "rjust" => {
            let (width, fill): (usize, Option<char>) = from_args(args)?;
            let before = |width: usize, missing: usize| match name {
                "center" => centred(width, missing),
                "ljust" => 0,
                _ => missing,
            };
            padded(state, text, width, fill.unwrap_or(' '), before)?.into()
        }
        _ => return Ok(None),
    };
    Ok(Some(value))
}

/// A list of texts.
fn texts<'a>(texts: impl IntoIterator<Item = &'a str>) -> Value {
    texts.into_iter().map(Value::from).collect()
}

fn separator(text: &str) -> Result<&str, Error> {
    match text {
        "" => Err(Error::new(ErrorKind::InvalidOperation, "empty separator")),
        text => Ok(text),
    }
}

/// A text split from its end, at most `most` times.
fn rsplit(text: &str, by: Option<&str>, most: Option<usize>) -> Result<Value, Error> {
    let most = most.unwrap_or(usize::MAX - 1);
    let parts: Vec<&str> = match by {
        Some(by) => text.rsplitn(most + 1, separator(by)?).collect(),
        None => {
            let (mut rest, mut parts) = (text.trim_end(), Vec::new());
            while !rest.is_empty() {
                let split = rest.rfind(char::is_whitespace).filter(|_| parts.len() < most);
                let start = split.map_or(0, |at| at + rest[at..].chars().next().map_or(0, char::len_utf8));
                parts.push(&rest[start..]);
                rest = rest[..start].trim_end();
            }
            parts
        }
    };
    Ok(texts(parts.into_iter().rev()))
}

/// A text with as many `fill`s that it has `width` characters; `before` gives the number of those before it, from the width and the
/// number of missing ones.
fn padded(
    state: &mut State,
    text: &str,
    width: usize,
    fill: char,
    before: impl Fn(usize, usize) -> usize,
) -> Result<String, Error> {
    let missing = width.saturating_sub(text.chars().count());
    state.consume_fuel((missing / 64) as u64)?;
    let before = before(width, missing);
    let fills = |count: usize| std::iter::repeat_n(fill, count);
    Ok(fills(before).chain(text.chars()).chain(fills(missing - before)).collect())
}
