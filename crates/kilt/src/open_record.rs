//! Serde for records whose unknown fields must survive a round trip.
//!
//! `#[serde(flatten)]` would buffer every record before it reads the known fields. These implementations read
//! known fields directly and buffer only the rest.

/// Implements `Serialize` and `Deserialize` for a struct with required fields, optional fields (`Option<_>`) and
/// `extra: Map<String, Value>`. The groups are written in the order in which they are listed. A known field that is `null` is kept in `extra` too, so that it is written again.
macro_rules! open_record {
    ($name:ident, $(
        required { $($req:ident = $req_key:literal),* }, optional { $($opt:ident = $opt_key:literal),* }
    ),+) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                use serde::ser::SerializeMap;
                let mut map = serializer.serialize_map(None)?;
                $(
                    $(map.serialize_entry($req_key, &self.$req)?;)*
                    $(if let Some(value) = &self.$opt { map.serialize_entry($opt_key, value)?; })*
                )+
                for (key, value) in &self.extra {
                    map.serialize_entry(key, value)?;
                }
                map.end()
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl<'de> serde::de::Visitor<'de> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str("an object")
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<$name, A::Error> {
                        $(
                            $(let mut $req = None;)*
                            $(let mut $opt = None;)*
                        )+
                        let mut extra = serde_json::Map::new();
                        while let Some(key) = map.next_key::<std::borrow::Cow<'de, str>>()? {
                            match &*key {
                                $(
                                    $($req_key => $req = Some(map.next_value()?),)*
                                    $($opt_key => {
                                        $opt = map.next_value()?;
                                        if $opt.is_none() {
                                            extra.insert(key.into_owned(), serde_json::Value::Null);
                                        }
                                    })*
                                )+
                                _ => { extra.insert(key.into_owned(), map.next_value()?); }
                            }
                        }
                        Ok($name {
                            $(
                                $($req: $req.ok_or_else(|| serde::de::Error::missing_field($req_key))?,)*
                                $($opt,)*
                            )+
                            extra,
                        })
                    }
                }
                deserializer.deserialize_map(Visitor)
            }
        }
    };
}

pub(crate) use open_record;
