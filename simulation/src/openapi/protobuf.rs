//! The older OpenAPI document in the binary form that client-go asks for: gnostic's `openapi.v2.Document`.
//!
//! Only what schemas of Kubernetes use is written: definitions, and no paths.

use serde_json::{Map, Value};

/// The media type of this form.
pub(super) const MEDIA: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// `openapi.v2.Document`: `swagger` = 1, `info` = 2, `paths` = 8, `definitions` = 9.
pub(super) fn document(document: &Value) -> Vec<u8> {
    let mut out = Message::default();
    out.text(1, document["swagger"].as_str());
    out.message(2, |info| {
        info.text(1, document["info"]["title"].as_str());
        info.text(2, document["info"]["version"].as_str());
    });
    out.message(8, |_| {});
    out.message(9, |definitions| {
        for (name, schema) in document["definitions"].as_object().into_iter().flatten() {
            definitions.message(1, |named| named_schema(named, name, schema));
        }
    });
    out.0
}

/// Bytes of one message.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push((number as u8) | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn tag(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }

    fn text(&mut self, field: u64, text: Option<&str>) {
        if let Some(text) = text {
            self.tag(field, 2);
            self.varint(text.len() as u64);
            self.0.extend_from_slice(text.as_bytes());
        }
    }

    fn number(&mut self, field: u64, number: Option<u64>) {
        if let Some(number) = number {
            self.tag(field, 0);
            self.varint(number);
        }
    }

    fn double(&mut self, field: u64, number: Option<f64>) {
        if let Some(number) = number {
            self.tag(field, 1);
            self.0.extend_from_slice(&number.to_le_bytes());
        }
    }

    fn message(&mut self, field: u64, fill: impl FnOnce(&mut Message)) {
        let mut inner = Message::default();
        fill(&mut inner);
        self.tag(field, 2);
        self.varint(inner.0.len() as u64);
        self.0.append(&mut inner.0);
    }

    /// `openapi.v2.Any`: the value as YAML, of which JSON is a part.
    fn any(&mut self, field: u64, value: &Value) {
        self.message(field, |any| any.text(2, Some(&value.to_string())));
    }
}

fn named_schema(out: &mut Message, name: &str, value: &Value) {
    out.text(1, Some(name));
    out.message(2, |out| schema(out, value));
}

fn schema(out: &mut Message, value: &Value) {
    let Some(fields) = value.as_object() else { return };
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let number = |name: &str| fields.get(name).and_then(Value::as_u64);
    let float = |name: &str| fields.get(name).and_then(Value::as_f64);
    out.text(1, text("$ref"));
    out.text(2, text("format"));
    out.text(3, text("title"));
    out.text(4, text("description"));
    if let Some(default) = fields.get("default") {
        out.any(5, default);
    }
    out.double(7, float("maximum"));
    out.double(9, float("minimum"));
    out.number(11, number("maxLength"));
    out.number(12, number("minLength"));
    out.text(13, text("pattern"));
    out.number(14, number("maxItems"));
    out.number(15, number("minItems"));
    for name in strings(fields, "required") {
        out.text(19, Some(name));
    }
    for value in fields.get("enum").and_then(Value::as_array).into_iter().flatten() {
        out.any(20, value);
    }
    match fields.get("additionalProperties") {
        Some(Value::Bool(open)) => out.message(21, |item| item.number(2, Some(u64::from(*open)))),
        Some(below) => out.message(21, |item| item.message(1, |out| schema(out, below))),
        None => {}
    }
    if let Some(kind) = text("type") {
        out.message(22, |item| item.text(1, Some(kind)));
    }
    if let Some(below) = fields.get("items") {
        out.message(23, |item| item.message(1, |out| schema(out, below)));
    }
    if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
        out.message(25, |all| {
            for (name, below) in properties {
                all.message(1, |named| named_schema(named, name, below));
            }
        });
    }
    for (name, value) in fields.iter().filter(|(name, _)| name.starts_with("x-")) {
        out.message(31, |named| {
            named.text(1, Some(name));
            named.any(2, value);
        });
    }
}

fn strings<'a>(fields: &'a Map<String, Value>, name: &str) -> impl Iterator<Item = &'a str> {
    fields
        .get(name)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_message_is_its_fields_in_order_with_lengths_before_them() {
        let bytes = document(&json!({
            "swagger": "2.0", "info": {"title": "K", "version": "1"}, "definitions": {"a": {"type": "string"}},
        }));
        let expected = [
            &[0x0a, 3][..],
            b"2.0",
            &[0x12, 6, 0x0a, 1, b'K', 0x12, 1, b'1'],
            &[0x42, 0],
            // definitions { additional_properties { name: "a" value { type { value: "string" } } } }
            &[
                0x4a, 18, 0x0a, 16, 0x0a, 1, b'a', 0x12, 11, 0xb2, 0x01, 8, 0x0a, 6,
            ],
            b"string",
        ]
        .concat();
        assert_eq!(bytes, expected);
    }
}
