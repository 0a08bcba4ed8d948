//! Kubernetes documents as Lua values.

use mlua::{Lua, Result, Table, Value as LuaValue};
use serde_json::{Map, Number};

use crate::Value;

/// `value` as Lua sees it: every number is a double, lists count from 1, null is nil (so a null field does not exist).
pub(super) fn to_lua(lua: &Lua, value: &Value) -> Result<LuaValue> {
    Ok(match value {
        Value::Null => LuaValue::Nil,
        Value::Bool(truth) => LuaValue::Boolean(*truth),
        Value::Number(number) => LuaValue::Number(number.as_f64().unwrap_or(f64::NAN)),
        Value::String(text) => LuaValue::String(lua.create_string(text)?),
        Value::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for item in items {
                table.raw_push(to_lua(lua, item)?)?;
            }
            LuaValue::Table(table)
        }
        Value::Object(fields) => {
            let table = lua.create_table_with_capacity(0, fields.len())?;
            for (name, field) in fields {
                table.raw_set(name.as_str(), to_lua(lua, field)?)?;
            }
            LuaValue::Table(table)
        }
    })
}

/// Tables inside tables at most; a table that holds itself has no end.
const DEPTH_MAX: usize = 200;

/// A Lua value as JSON. A table with the keys 1, 2, … is a list, and so is an empty one; one with texts as keys is a map.
pub(super) fn from_lua(value: &LuaValue) -> std::result::Result<Value, String> {
    value_at(value, 0)
}

fn value_at(value: &LuaValue, depth: usize) -> std::result::Result<Value, String> {
    if depth > DEPTH_MAX {
        return Err("cannot encode recursively nested tables to JSON".to_owned());
    }
    Ok(match value {
        LuaValue::Nil => Value::Null,
        LuaValue::Boolean(truth) => Value::Bool(*truth),
        LuaValue::Integer(number) => Value::Number((*number).into()),
        LuaValue::Number(number) => Value::Number(number_of(*number)?),
        LuaValue::String(text) => Value::String(text.to_string_lossy()),
        LuaValue::Table(table) => table_at(table, depth)?,
        other => return Err(format!("cannot encode {} to JSON", other.type_name())),
    })
}

fn number_of(number: f64) -> std::result::Result<Number, String> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        return Ok((number as i64).into());
    }
    Number::from_f64(number).ok_or_else(|| format!("json: unsupported value: {number}"))
}

fn table_at(table: &Table, depth: usize) -> std::result::Result<Value, String> {
    let mut fields = Map::new();
    let mut items = Vec::new();
    for pair in table.pairs::<LuaValue, LuaValue>() {
        let (key, value) = pair.map_err(|error| error.to_string())?;
        let value = value_at(&value, depth + 1)?;
        match key {
            LuaValue::String(name) => {
                fields.insert(name.to_string_lossy(), value);
            }
            LuaValue::Integer(place) => items.push((place as f64, value)),
            LuaValue::Number(place) => items.push((place, value)),
            _ => return Err("cannot encode mixed or invalid key types".to_owned()),
        }
    }
    if items.is_empty() {
        return Ok(if fields.is_empty() {
            Value::Array(Vec::new())
        } else {
            Value::Object(fields)
        });
    }
    if !fields.is_empty() {
        return Err("cannot encode mixed or invalid key types".to_owned());
    }
    items.sort_by(|(a, _), (b, _)| a.total_cmp(b));
    let consecutive = items
        .iter()
        .enumerate()
        .all(|(index, (place, _))| *place == (index + 1) as f64);
    if !consecutive {
        return Err("cannot encode sparse array".to_owned());
    }
    Ok(items.into_iter().map(|(_, value)| value).collect())
}
