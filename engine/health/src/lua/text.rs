//! `string.find`, `match`, `gmatch` and `gsub` over our own matcher.

use std::sync::atomic::{AtomicUsize, Ordering};

use mlua::{Error, IntoLuaMulti, Lua, LuaString, MultiValue, Result, Table, Value as LuaValue};

use super::pattern::{self, Capture, Match};

/// Puts the four functions into `library`.
pub(super) fn install(lua: &Lua, library: &Table) -> Result<()> {
    library.raw_set("find", lua.create_function(find)?)?;
    library.raw_set("match", lua.create_function(first_match)?)?;
    library.raw_set("gmatch", lua.create_function(all_matches)?)?;
    library.raw_set("gsub", lua.create_function(substitute)?)
}

fn find(
    lua: &Lua,
    (subject, wanted, init, plain): (LuaString, LuaString, Option<i64>, Option<bool>),
) -> Result<MultiValue> {
    let (subject, wanted) = (subject.as_bytes(), wanted.as_bytes());
    let Some(from) = start(init, subject.len()) else {
        return (LuaValue::Nil,).into_lua_multi(lua);
    };
    if plain.unwrap_or(false) || !wanted.iter().any(|byte| b"^$*+?.([%-".contains(byte)) {
        return match find_plain(&subject[from..], &wanted) {
            Some(offset) => (from + offset + 1, from + offset + wanted.len()).into_lua_multi(lua),
            None => (LuaValue::Nil,).into_lua_multi(lua),
        };
    }
    match search(&subject, &wanted, from)? {
        None => (LuaValue::Nil,).into_lua_multi(lua),
        Some(hit) => {
            let mut results = MultiValue::new();
            results.push_back(LuaValue::Number((hit.start + 1) as f64));
            results.push_back(LuaValue::Number(hit.end as f64));
            for capture in &hit.captures {
                results.push_back(captured(lua, &subject, *capture)?);
            }
            Ok(results)
        }
    }
}

fn first_match(
    lua: &Lua,
    (subject, wanted, init): (LuaString, LuaString, Option<i64>),
) -> Result<MultiValue> {
    let (subject, wanted) = (subject.as_bytes(), wanted.as_bytes());
    let hit = match start(init, subject.len()) {
        Some(from) => search(&subject, &wanted, from)?,
        None => None,
    };
    match hit {
        None => (LuaValue::Nil,).into_lua_multi(lua),
        Some(hit) => groups(lua, &subject, &hit),
    }
}

fn all_matches(lua: &Lua, (subject, wanted): (LuaString, LuaString)) -> Result<mlua::Function> {
    let next = AtomicUsize::new(0);
    lua.create_function(move |lua, _: MultiValue| {
        let (subject, wanted) = (subject.as_bytes(), wanted.as_bytes());
        let from = next.load(Ordering::Relaxed);
        if from > subject.len() {
            return (LuaValue::Nil,).into_lua_multi(lua);
        }
        match search(&subject, &wanted, from)? {
            None => {
                next.store(subject.len() + 1, Ordering::Relaxed);
                (LuaValue::Nil,).into_lua_multi(lua)
            }
            Some(hit) => {
                next.store(
                    if hit.end == hit.start {
                        hit.end + 1
                    } else {
                        hit.end
                    },
                    Ordering::Relaxed,
                );
                groups(lua, &subject, &hit)
            }
        }
    })
}

fn substitute(
    lua: &Lua,
    (subject, wanted, replacement, limit): (LuaString, LuaString, LuaValue, Option<i64>),
) -> Result<(LuaString, usize)> {
    let (subject, wanted) = (subject.as_bytes(), wanted.as_bytes());
    let limit = limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(0));
    let anchored = wanted.first() == Some(&b'^');
    let (mut result, mut place, mut count) = (Vec::with_capacity(subject.len()), 0, 0);
    while count < limit && place <= subject.len() {
        let Some(hit) = search(&subject, &wanted, place)? else {
            break;
        };
        result.extend_from_slice(&subject[place..hit.start]);
        replace(lua, &subject, &hit, &replacement, &mut result)?;
        count += 1;
        place = hit.end;
        if hit.end == hit.start {
            result.extend(subject.get(place));
            place += 1;
        }
        if anchored {
            break;
        }
    }
    result.extend_from_slice(subject.get(place..).unwrap_or_default());
    Ok((lua.create_string(result)?, count))
}

fn replace(
    lua: &Lua,
    subject: &[u8],
    hit: &Match,
    replacement: &LuaValue,
    result: &mut Vec<u8>,
) -> Result<()> {
    let value = match replacement {
        LuaValue::String(_) | LuaValue::Number(_) | LuaValue::Integer(_) => {
            let template = lua
                .coerce_string(replacement.clone())?
                .ok_or_else(|| Error::runtime("invalid replacement"))?;
            return expand(lua, subject, hit, &template.as_bytes(), result);
        }
        LuaValue::Table(table) => table.get::<LuaValue>(groups(lua, subject, hit)?.into_iter().next())?,
        LuaValue::Function(function) => function.call::<LuaValue>(groups(lua, subject, hit)?)?,
        other => {
            return Err(Error::runtime(format!(
                "bad argument #3 to 'gsub' (string/function/table expected, got {})",
                other.type_name()
            )));
        }
    };
    match value {
        LuaValue::Nil | LuaValue::Boolean(false) => result.extend_from_slice(&subject[hit.start..hit.end]),
        LuaValue::String(_) | LuaValue::Number(_) | LuaValue::Integer(_) => {
            if let Some(text) = lua.coerce_string(value)? {
                result.extend_from_slice(&text.as_bytes());
            }
        }
        other => {
            return Err(Error::runtime(format!(
                "invalid replacement value (a {})",
                other.type_name()
            )));
        }
    }
    Ok(())
}

/// `%0` is the match, `%1`… a group, `%%` a percent sign.
fn expand(lua: &Lua, subject: &[u8], hit: &Match, template: &[u8], result: &mut Vec<u8>) -> Result<()> {
    let mut bytes = template.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            result.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'0') => result.extend_from_slice(&subject[hit.start..hit.end]),
            Some(digit) if digit.is_ascii_digit() => {
                let index = usize::from(digit - b'1');
                let value = match hit.captures.get(index) {
                    Some(capture) => captured(lua, subject, *capture)?,
                    None if index == 0 => LuaValue::String(lua.create_string(&subject[hit.start..hit.end])?),
                    None => return Err(Error::runtime("invalid capture index")),
                };
                if let Some(text) = lua.coerce_string(value)? {
                    result.extend_from_slice(&text.as_bytes());
                }
            }
            Some(other) => result.push(other),
            None => return Err(Error::runtime("invalid use of '%' in replacement string")),
        }
    }
    Ok(())
}

/// The groups of a match; the whole match if it has none.
fn groups(lua: &Lua, subject: &[u8], hit: &Match) -> Result<MultiValue> {
    if hit.captures.is_empty() {
        return lua
            .create_string(&subject[hit.start..hit.end])?
            .into_lua_multi(lua);
    }
    hit.captures
        .iter()
        .map(|capture| captured(lua, subject, *capture))
        .collect()
}

fn captured(lua: &Lua, subject: &[u8], capture: Capture) -> Result<LuaValue> {
    Ok(match capture {
        Capture::Span(start, end) => LuaValue::String(lua.create_string(&subject[start..end])?),
        Capture::Position(place) => LuaValue::Number((place + 1) as f64),
    })
}

fn search(subject: &[u8], wanted: &[u8], from: usize) -> Result<Option<Match>> {
    pattern::find(subject, wanted, from).map_err(Error::runtime)
}

/// Where a search begins, from 0: Lua counts from 1, and from the end if negative. `None` if behind the end.
fn start(init: Option<i64>, len: usize) -> Option<usize> {
    let init = init.unwrap_or(1);
    let from = if init > 0 {
        usize::try_from(init).unwrap_or(usize::MAX) - 1
    } else if init == 0 {
        0
    } else {
        len.saturating_sub(usize::try_from(init.unsigned_abs()).unwrap_or(usize::MAX))
    };
    (from <= len).then_some(from)
}

fn find_plain(subject: &[u8], wanted: &[u8]) -> Option<usize> {
    if wanted.is_empty() {
        return Some(0);
    }
    subject.windows(wanted.len()).position(|window| window == wanted)
}
