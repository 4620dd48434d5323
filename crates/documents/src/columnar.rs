//! Parquet: rows of typed columns.

use std::fs;

use parquet::{
    basic::{LogicalType, Repetition, TimeUnit},
    file::reader::{FileReader, SerializedFileReader},
    record::{Field, Row as Stored, reader::RowIter},
    schema::types::{Type, TypePtr},
};
use serde_json::{Map, Number, Value};

use crate::record::Row;

/// The rows of a file, numbered from 1.
pub(crate) struct Rows {
    rows: RowIter<'static>,
    number: u64,
    /// The types of the columns. They tell times in nanoseconds, which the crate gives as numbers.
    schema: TypePtr,
}

impl Rows {
    /// # Errors
    /// A message for a damaged file.
    pub(crate) fn open(file: fs::File) -> Result<Self, String> {
        let reader: Box<dyn FileReader> = Box::new(
            SerializedFileReader::new(file)
                .map_err(|error| format!("the Parquet file is damaged: {error}"))?,
        );
        let schema = reader.metadata().file_metadata().schema_descr().root_schema_ptr();
        Ok(Self { rows: RowIter::from_file_into(reader), number: 0, schema })
    }

    /// The next row; `None` at the end.
    ///
    /// # Errors
    /// The number of the row and a message. Nothing after it can be read.
    pub(crate) fn next(&mut self) -> Option<Result<Row, (u64, String)>> {
        self.number += 1;
        let row = self.rows.next()?;
        Some(match row {
            Ok(row) => {
                let fields = fields(&row, Some(&self.schema));
                Ok(Row { number: self.number, line: None, has_types: true, fields })
            }
            Err(error) => Err((self.number, error.to_string())),
        })
    }
}

/// The values of a row, or of a group of this type.
fn fields(row: &Stored, group: Option<&Type>) -> Map<String, Value> {
    let column = |(name, field): (&String, &Field)| {
        (name.clone(), value(field, group.and_then(|group| member(group, name))))
    };
    row.get_column_iter().map(column).collect()
}

/// The type of a column of a group.
fn member<'t>(group: &'t Type, name: &str) -> Option<&'t Type> {
    let columns = if group.is_group() { group.get_fields() } else { &[] };
    columns.iter().find(|column| column.name() == name).map(|column| &**column)
}

/// The type of the elements of a list, by the rules of Parquet for lists of older writers.
fn element(list: &Type) -> Option<&Type> {
    let about = list.get_basic_info();
    if list.is_primitive() || (about.has_repetition() && about.repetition() == Repetition::REPEATED) {
        return Some(list);
    }
    let repeated = list.get_fields().first()?;
    let is_element = repeated.is_primitive()
        || repeated.get_fields().len() != 1
        || repeated.name() == "array"
        || repeated.name().ends_with("_tuple");
    if is_element { Some(repeated) } else { repeated.get_fields().first().map(|inner| &**inner) }
}

/// The type of the values of a map.
fn map_value(map: &Type) -> Option<&Type> {
    let pairs = if map.is_group() { map.get_fields().first()? } else { return None };
    let columns = if pairs.is_group() { pairs.get_fields() } else { &[] };
    columns.get(1).map(|column| &**column)
}

/// Whether a type is a time in nanoseconds.
fn is_in_nanoseconds(kind: Option<&Type>) -> bool {
    let logical = kind.and_then(|kind| kind.get_basic_info().logical_type_ref());
    matches!(logical, Some(LogicalType::Timestamp(time)) if time.unit == TimeUnit::NANOS)
}

/// A value of a type as JSON; bytes that are no text are null.
fn value(field: &Field, kind: Option<&Type>) -> Value {
    let float = |number: f64| Number::from_f64(number).map_or(Value::Null, Value::Number);
    match field {
        Field::Null => Value::Null,
        Field::Bool(value) => (*value).into(),
        Field::Byte(number) => (*number).into(),
        Field::Short(number) => (*number).into(),
        Field::Int(number) => (*number).into(),
        Field::Long(time) if is_in_nanoseconds(kind) => timestamp(*time, 1_000_000_000).into(),
        Field::Long(number) => (*number).into(),
        Field::UByte(number) => (*number).into(),
        Field::UShort(number) => (*number).into(),
        Field::UInt(number) => (*number).into(),
        Field::ULong(number) => (*number).into(),
        Field::Float16(number) => float(number.to_f64()),
        // By its shortest decimal form, as people wrote it.
        Field::Float(number) => number.to_string().parse().map_or(Value::Null, float),
        Field::Double(number) => float(*number),
        Field::Str(text) => text.as_str().into(),
        Field::Bytes(bytes) => std::str::from_utf8(bytes.data()).map_or(Value::Null, Value::from),
        Field::Date(days) => date(i64::from(*days)).into(),
        Field::TimestampMillis(time) => timestamp(*time, 1000).into(),
        Field::TimestampMicros(time) => timestamp(*time, 1_000_000).into(),
        Field::Group(row) => fields(row, kind).into(),
        Field::ListInternal(list) => {
            let kind = kind.and_then(element);
            list.elements().iter().map(|field| value(field, kind)).collect()
        }
        Field::MapInternal(map) => {
            let kind = kind.and_then(map_value);
            let entries = map.entries().iter().map(|(key, field)| (key.to_string(), value(field, kind)));
            entries.collect::<Map<_, _>>().into()
        }
        // Decimals and times of day, as the crate writes them.
        other => other.to_string().into(),
    }
}

/// The date of a number of days since 1970 (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`).
fn date(days: i64) -> String {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// A time since 1970 in parts of a second.
fn timestamp(time: i64, unit: i64) -> String {
    let seconds = time.div_euclid(unit);
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    format!("{}T{:02}:{:02}:{:02}", date(days), of_day / 3600, of_day / 60 % 60, of_day % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_and_times_are_dates() {
        assert_eq!(
            [0, -1, 19_874, 11_016].map(date),
            ["1970-01-01", "1969-12-31", "2024-05-31", "2000-02-29"]
        );
        assert_eq!(timestamp(1_717_157_045_123, 1000), "2024-05-31T12:04:05");
        assert_eq!(timestamp(-1, 1000), "1969-12-31T23:59:59");
    }
}
