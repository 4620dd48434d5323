//! PDF, docx, odt, epub and Parquet.

use std::sync::Arc;

use parquet::{
    data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type},
    file::writer::SerializedFileWriter,
    schema::parser::parse_message_type,
};
use sporran_kilt::{Field, PassageId, PassageSplit};

use crate::{
    World,
    make::{docx, epub, odt, pdf, zip},
};

#[test]
fn pdf_files_have_pages_headings_and_paragraphs() {
    let world = World::new();
    let first: &[(u32, &str)] = &[
        (18, "Tea (hot)"),
        (11, "It is a drink that peo-"),
        (11, "ple boil in water."),
        (11, ""),
        (11, "A second paragraph."),
    ];
    let second: &[(u32, &str)] = &[(18, "Milk"), (11, "It is white."), (11, "Caf\u{e9}.")];
    let latin: Vec<u8> = String::from_utf8(pdf(&[first, second])).unwrap().chars().map(|c| c as u8).collect();
    world.write("drinks.pdf", latin);
    let expected = [
        "drinks.pdf, page 1, Tea (hot), paragraphs 1 to 2: Tea (hot) It is a drink that people boil in water.",
        "drinks.pdf, page 1, Tea (hot), paragraphs 3 to 3: A second paragraph.",
        "drinks.pdf, page 2, Milk, paragraphs 4 to 5: Milk It is white. Caf\u{e9}.",
    ];
    assert_eq!(world.passages(PassageSplit::Paragraph), expected);
    let store = world.store(&world.collect().unwrap(), PassageSplit::Page);
    let passage = store.passage(PassageId(0));
    assert_eq!(passage.title, "A (short) title");
    assert_eq!(passage.metadata.get("author"), Some(&Field::Text("Ann".into())));
    assert_eq!(passage.metadata.get("date"), Some(&Field::Text("2024-05-31".into())));
}

#[test]
fn office_documents_and_books_have_their_sections() {
    let world = World::new();
    let blocks = [(1, "Tea"), (0, "It is  hot &amp; wet."), (2, "Brew"), (0, "\u{c}Boil it.")];
    world.write("a.docx", docx(&blocks));
    world.write("b.odt", odt(&blocks));
    world.write(
        "c.epub",
        epub(&["<h1>Tea</h1><p>It is <i>hot</i> &amp; wet.</p>", "<h1>Milk</h1><p>White.</p>"]),
    );
    let expected = [
        "a.docx, page 1, Tea, paragraphs 1 to 2: Tea It is hot & wet.",
        "a.docx, page 1, Tea > Brew, paragraphs 3 to 4: Brew Boil it.",
        "b.odt, page 1, Tea, paragraphs 1 to 2: Tea It is hot & wet.",
        "b.odt, page 1, Tea > Brew, paragraphs 3 to 4: Brew Boil it.",
        "c.epub, Tea, paragraphs 1 to 2: Tea It is hot & wet.",
        "c.epub, Milk, paragraphs 3 to 4: Milk White.",
    ];
    assert_eq!(world.passages(PassageSplit::Section), expected);
    let store = world.store(&world.collect().unwrap(), PassageSplit::Page);
    let titles: Vec<String> = (0..3).map(|id| store.passage(PassageId(id)).title).collect();
    assert_eq!(titles, ["A docx", "An odt", "An epub"]);
    assert_eq!(
        store.passage(PassageId(0)).metadata.get("date"),
        Some(&Field::Text("2024-05-31T12:00:00Z".into()))
    );
    assert_eq!(store.passage(PassageId(2)).metadata.get("language"), Some(&Field::Text("en".into())));
}

#[test]
fn damaged_files_of_these_formats_are_told() {
    let world = World::new();
    world.write("a.txt", "Good.");
    let whole = pdf(&[&[(11, "x")]]);
    world.write("cut.pdf", &whole[..40]);
    world.write("cut.docx", &docx(&[(0, "x")])[..80]);
    world.write("other.zip", zip(&[("a.txt", "x")]));
    world.write("scan.pdf", pdf(&[&[], &[]]));
    world.write("xml.docx", zip(&[("word/document.xml", "<a><b></a>")]));
    let locked = String::from_utf8(whole).unwrap().replace(
        "/Info 4 0 R",
        "/ID [(0123456789abcdef) (0123456789abcdef)] /Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O (0123456789abcdef0123456789abcdef) /U (0123456789abcdef0123456789abcdef) >>",
    );
    world.write("locked.pdf", locked);
    // A font of drawings, as old LaTeX files have, whose characters have no names.
    let drawn = String::from_utf8(pdf(&[&[(10, "ab")]])).unwrap().replace(
        "/Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding",
        "/Subtype /Type3 /FontBBox [0 0 9 9] /FontMatrix [0.001 0 0 0.001 0 0] /CharProcs << /a82 6 0 R >> /Encoding << /Differences [97 /a82 /a82] >> /FirstChar 97 /LastChar 98 /Widths [500 500]",
    );
    world.write("drawn.pdf", drawn);
    let problems = world.problems();
    let expected = [
        "cut.docx: the zip archive is damaged",
        "cut.pdf: expected a PDF file, found a damaged one",
        "drawn.pdf: has no readable text: its characters have no Unicode values",
        "locked.pdf: is encrypted, and a password is needed to read it",
        "other.zip: expected docx, odt or epub, found another zip archive",
        "scan.pdf: has no text layer on any of its 2 pages",
        "xml.docx: word/document.xml in the archive is damaged",
    ];
    assert_eq!(problems.len(), expected.len(), "{problems:#?}");
    for (problem, expected) in problems.iter().zip(expected) {
        assert!(problem.starts_with(expected), "{problem}");
    }
}

/// A Parquet file of two rows: a name, a year that can be missing, and a day.
fn table() -> Vec<u8> {
    let schema = "message m { REQUIRED BYTE_ARRAY name (UTF8); OPTIONAL INT32 year; REQUIRED INT32 day (DATE); \
                  REQUIRED INT64 seen (TIMESTAMP(NANOS,true)); }";
    let mut bytes = Vec::new();
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let names = ["Ann", "Bob"].map(ByteArray::from);
    column.typed::<ByteArrayType>().write_batch(&names, None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[1990], Some(&[1, 0]), None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[19_874, 0], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[1_717_157_045_123_000_000, 0], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    bytes
}

#[test]
fn rows_of_parquet_files_are_pages() {
    let world = World::new();
    let whole = table();
    world.write("people.parquet", &whole);
    let expected = [
        "people.parquet, row 1, paragraphs 1 to 1: name: Ann\nyear: 1990\nday: 2024-05-31\nseen: 2024-05-31T12:04:05",
        "people.parquet, row 2, paragraphs 1 to 1: name: Bob\nday: 1970-01-01\nseen: 1970-01-01T00:00:00",
    ];
    assert_eq!(world.passages(PassageSplit::Page), expected);
    world.write("cut.parquet", &whole[..whole.len() / 2]);
    let problems = world.problems();
    assert!(
        problems.len() == 1 && problems[0].starts_with("cut.parquet: the Parquet file is damaged"),
        "{problems:?}"
    );
}

#[test]
fn times_in_nanoseconds_in_groups_and_lists_are_times() {
    let schema = "message m { REQUIRED group seen { REQUIRED INT64 first (TIMESTAMP(NANOS,true)); } \
                  REQUIRED group times (LIST) { REPEATED group list { REQUIRED INT64 element (TIMESTAMP(NANOS,true)); } } }";
    let mut bytes = Vec::new();
    let schema = Arc::new(parse_message_type(schema).unwrap());
    let mut writer = SerializedFileWriter::new(&mut bytes, schema, Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int64Type>().write_batch(&[1_717_157_045_123_000_000], None, None).unwrap();
    column.close().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    let times = [0, 1_717_157_045_123_000_000];
    column.typed::<Int64Type>().write_batch(&times, Some(&[1, 1]), Some(&[0, 1])).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
    let world = World::new();
    world.write("times.parquet", bytes);
    let text = "seen: {\"first\":\"2024-05-31T12:04:05\"}\ntimes: 1970-01-01T00:00:00, 2024-05-31T12:04:05";
    assert_eq!(world.rows(), [format!("times.parquet#1: {text}")]);
}

#[test]
fn notes_of_docx_stand_where_they_are_referred_to() {
    let world = World::new();
    let names = "xmlns:w=\"w\"";
    let notes = |kind: &str, text: &str| {
        format!(
            "<w:{kind}s {names}><w:{kind} w:type=\"separator\" w:id=\"-1\"><w:p><w:r><w:t>-</w:t></w:r></w:p></w:{kind}>\
             <w:{kind} w:id=\"2\"><w:p><w:r><w:{kind}Ref/></w:r><w:r><w:t>{text}</w:t></w:r></w:p></w:{kind}></w:{kind}s>"
        )
    };
    let body = "<w:p><w:r><w:t>It is hot</w:t></w:r><w:r><w:footnoteReference w:id=\"2\"/></w:r><w:r><w:t>and wet.</w:t></w:r>\
                <w:r><w:endnoteReference w:id=\"2\"/></w:r><w:r><w:footnoteReference w:id=\"9\"/></w:r></w:p>";
    world.write(
        "a.docx",
        zip(&[
            ("word/document.xml", &format!("<w:document {names}><w:body>{body}</w:body></w:document>")),
            ("word/footnotes.xml", &notes("footnote", "Ninety degrees.")),
            ("word/endnotes.xml", &notes("endnote", "Rain.")),
        ]),
    );
    let found = world.passages(PassageSplit::Paragraph);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].ends_with("It is hot Ninety degrees. and wet. Rain."), "{found:?}");
}

/// The blocks of a docx or an odt with this body, each after a bar.
fn blocks_of(name: &str, body: &str) -> String {
    let world = World::new();
    let (file, text) = match name.ends_with("docx") {
        true => {
            ("word/document.xml", format!("<w:document xmlns:w=\"w\"><w:body>{body}</w:body></w:document>"))
        }
        false => (
            "content.xml",
            format!("<o:d xmlns:o=\"o\" xmlns:t=\"t\"><o:body><o:text>{body}</o:text></o:body></o:d>"),
        ),
    };
    world.write(name, zip(&[(file, &text)]));
    let found = world.passages(PassageSplit::Paragraph);
    found.iter().map(|passage| passage.rsplit_once(": ").unwrap().1).collect::<Vec<_>>().join("/")
}

#[test]
fn cells_of_docx_and_odt_have_their_text_once() {
    let p = |text: &str| format!("<w:p><w:r><w:t>{text}</w:t></w:r></w:p>");
    let cell = |inner: &str| format!("<w:tc>{inner}</w:tc>");
    // A cell in a content control, and a table in a cell.
    let control = format!("<w:sdt><w:sdtContent>{}</w:sdtContent></w:sdt>", cell(&p("Mr Holm")));
    let inner = format!("<w:tbl><w:tr>{}{}</w:tr></w:tbl>", cell(&p("in1")), cell(&p("in2")));
    let body = format!(
        "<w:tbl><w:tr>{}{control}</w:tr><w:tr>{}{}</w:tr></w:tbl>",
        cell(&p("Name")),
        cell(&p("outer")),
        cell(&(inner + &p("after")))
    );
    assert_eq!(blocks_of("a.docx", &body), "Name | Mr Holm\nouter | in1 | in2 after");
    // A text box of two paragraphs.
    let boxed =
        format!("<w:p><w:r><w:t>Before</w:t></w:r><w:txbx>{}{}</w:txbx></w:p>", p("First"), p("Second"));
    assert_eq!(blocks_of("a.docx", &boxed), "Before First Second");
    let cell = |inner: &str| {
        format!("<t:table><t:table-row><t:table-cell>{inner}</t:table-cell></t:table-row></t:table>")
    };
    assert_eq!(blocks_of("a.odt", &cell("<t:p>cell<t:box><t:p>boxed</t:p></t:box></t:p>")), "cell boxed");
    assert_eq!(
        blocks_of("a.odt", &cell("<t:p>price 5<o:annotation><t:p>secret</t:p></o:annotation></t:p>")),
        "price 5"
    );
}

#[test]
fn deeply_nested_elements_are_an_error() {
    let world = World::new();
    let nested =
        |tag: &str| format!("{}{}", format!("<{tag}>").repeat(50_000), format!("</{tag}>").repeat(50_000));
    world.write("c.txt", "Good.");
    for (name, file) in [("a.docx", "word/document.xml"), ("b.odt", "content.xml")] {
        world.write(name, zip(&[(file, &format!("<d><body>{}</body></d>", nested("sdt")))]));
    }
    let problems = world.problems();
    assert!(
        problems.len() == 2
            && problems.iter().all(|problem| problem.contains("within more than 1000 others")),
        "{problems:?}"
    );
}

#[test]
fn chapters_of_an_epub_are_found_by_relative_paths() {
    let world = World::new();
    let package = "<package><manifest><item id=\"a\" href=\"./a.xhtml\"/><item id=\"b\" href=\"../O/b.xhtml\"/></manifest>\
                   <spine><itemref idref=\"a\"/><itemref idref=\"b\"/></spine></package>";
    let container = "<container><rootfiles><rootfile full-path=\"O/p.opf\"/></rootfiles></container>";
    world.write(
        "a.epub",
        zip(&[
            ("META-INF/container.xml", container),
            ("O/p.opf", package),
            (
                "O/a.xhtml",
                "<?xml version=\"1.0\"?><html><head><title/></head><body><p>One.</p></body></html>",
            ),
            ("O/b.xhtml", "<html><body><p>Two.</p></body></html>"),
        ]),
    );
    let found = world.passages(PassageSplit::Paragraph).join("/");
    assert!(found.contains("One.") && found.contains("Two."), "{found}");
}

#[test]
fn lines_of_a_table_may_end_with_carriage_returns() {
    let world = World::new();
    world.write("a.csv", "name,note\rAnn,x\rBob,\"y\rz\"\r");
    assert_eq!(world.rows(), ["a.csv#1: name: Ann\nnote: x", "a.csv#2: name: Bob\nnote: y\nz"]);
    assert!(world.problems().is_empty());
}

#[test]
fn an_item_of_a_list_that_is_no_object_is_told() {
    let world = World::new();
    world.write("a.json", "[{\"name\": \"Ann\"},\n3,\n{\"name\": \"Bob\"}]");
    assert_eq!(world.rows(), ["a.json#1: name: Ann", "a.json#3: name: Bob"]);
    assert_eq!(world.problems(), ["a.json:2: expected a JSON object, found another value as item 2"]);
}
