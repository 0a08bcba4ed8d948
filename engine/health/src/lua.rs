//! Scripts in Lua 5.1: run under guard, read the answer.
//!
//! A script finds the live object in the global `obj`. One for health returns a table `{status, message}`, or nothing if it has no opinion;
//! one for an action finds its parameters in `actionParams` and returns what is to become of which objects.

mod convert;
mod machine;
mod pattern;
mod text;

use std::collections::BTreeMap;
use std::sync::Arc;

use mlua::Value as LuaValue;

use crate::Value;
use crate::status::{Health, Status};

pub use machine::{DEADLINE, MEMORY_LIMIT};

const INVALID_STATUS: &str = "Lua returned an invalid health status";

/// A script and what it may use.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    pub(crate) source: Arc<str>,
    pub(crate) open_libs: bool,
}

impl Script {
    pub(crate) fn new(source: &str, open_libs: bool) -> Self {
        Self {
            source: source.into(),
            open_libs,
        }
    }
}

/// Runs `script` on `live` with `params` as the global `actionParams` and hands back the table it returned.
pub(crate) fn table(
    script: &Script,
    live: &Value,
    params: &BTreeMap<String, String>,
) -> Result<Value, String> {
    machine::run(script, live, params, |answer| match answer {
        LuaValue::Table(_) => convert::from_lua(&answer),
        other => Err(format!(
            "expect table output from Lua script, not {}",
            other.type_name()
        )),
    })
}

/// Runs `script` on `live`. `None` if it returned nothing; `Unknown` with the reason if it failed.
pub(crate) fn health(script: &Script, live: &Value) -> Option<Health> {
    match machine::run(script, live, &BTreeMap::new(), read_answer) {
        Ok(answer) => answer,
        Err(error) => Some(Health::unknown(error)),
    }
}

fn read_answer(answer: LuaValue) -> Result<Option<Health>, String> {
    let table = match answer {
        LuaValue::Nil => return Ok(None),
        LuaValue::Table(table) => table,
        other => {
            return Err(format!(
                "expect table output from Lua script, not {}",
                other.type_name()
            ));
        }
    };
    let status = match table.raw_get::<LuaValue>("status").map_err(machine::describe)? {
        LuaValue::String(status) => status.to_string_lossy().parse::<Status>().ok(),
        _ => None,
    };
    let Some(status) = status else {
        return Ok(Some(Health::unknown(INVALID_STATUS)));
    };
    match table.raw_get::<LuaValue>("message").map_err(machine::describe)? {
        LuaValue::Nil => Ok(Some(Health::new(status, ""))),
        LuaValue::String(message) => Ok(Some(Health::new(status, message.to_string_lossy()))),
        other => Err(format!(
            "expect a string as message from Lua script, not {}",
            other.type_name()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn run(source: &str) -> Option<Health> {
        run_on(
            source,
            json!({"spec": {"replicas": 3, "ratio": 0.5, "items": ["a", "b"]}, "flag": true, "none": null}),
        )
    }

    fn run_on(source: &str, live: Value) -> Option<Health> {
        health(&Script::new(source, true), &live)
    }

    fn closed(source: &str) -> Option<Health> {
        health(&Script::new(source, false), &json!({}))
    }

    fn message(source: &str) -> String {
        run(&format!("return {{status = 'Healthy', message = {source}}}"))
            .map(|health| health.message)
            .unwrap_or_default()
    }

    #[test]
    fn status_and_message_are_read() {
        let answer = run("hs = {}; hs.status = 'Degraded'; hs.message = 'no luck'; return hs");
        assert_eq!(answer, Some(Health::new(Status::Degraded, "no luck")));
        assert_eq!(run("return {status = 'Healthy'}"), Some(Health::healthy()));
    }

    #[test]
    fn no_answer_is_no_health() {
        assert_eq!(run("return nil"), None);
        assert_eq!(run("local x = 1"), None);
    }

    #[test]
    fn an_unknown_code_is_reported() {
        for source in ["return {status = 'Fine'}", "return {}", "return {status = 3}"] {
            assert_eq!(
                run(source),
                Some(Health::unknown("Lua returned an invalid health status"))
            );
        }
    }

    #[test]
    fn another_type_is_reported() {
        assert_eq!(
            run("return 'Healthy'"),
            Some(Health::unknown("expect table output from Lua script, not string"))
        );
    }

    #[test]
    fn a_failing_script_is_unknown_with_place_and_reason() {
        let answer = run("local x = nil\nreturn x.y");
        assert_eq!(
            answer,
            Some(Health::unknown(
                "<string>:2: attempt to index local 'x' (a nil value)"
            ))
        );
        let answer = run("return {{").map(|health| health.status);
        assert_eq!(answer, Some(Status::Unknown));
    }

    #[test]
    fn numbers_lists_and_nulls_arrive_as_lua_has_them() {
        assert_eq!(message("tostring(obj.spec.replicas)"), "3");
        assert_eq!(message("tostring(obj.spec.ratio)"), "0.5");
        assert_eq!(message("obj.spec.items[1] .. #obj.spec.items"), "a2");
        assert_eq!(message("tostring(obj.none) .. tostring(obj.flag)"), "niltrue");
        assert_eq!(message("tostring(table.getn(obj.spec.items))"), "2");
    }

    #[test]
    fn string_functions_follow_lua_patterns() {
        assert_eq!(message("tostring(string.find('a.b', '.', 1, true))"), "2");
        assert_eq!(message("string.match('v1.29.3', 'v(%d+)%.(%d+)')"), "1");
        assert_eq!(message("(string.gsub('a-b-c', '-', '+'))"), "a+b+c");
        assert_eq!(message("('hello world'):gsub('%w+', '<%0>')"), "<hello> <world>");
        assert_eq!(
            message("('$name is $what'):gsub('%$(%w+)', {name = 'x', what = 'y'})"),
            "x is y"
        );
        assert_eq!(
            message(
                "(function() local t = {} for k, v in ('a=1,b=2'):gmatch('(%w+)=(%w+)') do t[#t+1] = k .. v end return table.concat(t, ';') end)()"
            ),
            "a1;b2"
        );
        assert_eq!(
            message("string.format('%d/%s', 2, 'x') .. ('ab'):upper() .. ('ab'):rep(2) .. ('abc'):sub(-2)"),
            "2/xABababbc"
        );
    }

    #[test]
    fn goto_is_understood() {
        assert_eq!(
            message(
                "(function() for i = 1, 3 do if i < 3 then goto continue end do return 'at ' .. i end ::continue:: end end)()"
            ),
            "at 3"
        );
    }

    #[test]
    fn without_open_libraries_only_base_table_and_a_safe_os_exist() {
        for library in ["string", "math", "io", "debug", "coroutine", "jit", "ffi", "bit"] {
            let answer = closed(&format!(
                "return {{status = 'Healthy', message = type({library})}}"
            ));
            assert_eq!(
                answer.map(|health| health.message).as_deref(),
                Some("nil"),
                "{library}"
            );
        }
        let answer = closed(
            "return {status = 'Healthy', message = type(os.time()) .. type(table.insert) .. type(os.execute)}",
        );
        assert_eq!(
            answer.map(|health| health.message).as_deref(),
            Some("numberfunctionnil")
        );
        let answer = closed("local os = require('os'); return {status = 'Healthy', message = type(os.date)}");
        assert_eq!(answer.map(|health| health.message).as_deref(), Some("function"));
    }

    #[test]
    fn open_libraries_do_not_reach_files_processes_or_raw_environments() {
        for name in [
            "io",
            "dofile",
            "loadfile",
            "debug",
            "ffi",
            "jit",
            "getfenv",
            "setfenv",
            "newproxy",
            "os.execute",
            "os.getenv",
            "os.remove",
            "string.dump",
        ] {
            assert_eq!(message(&format!("type({name})")), "nil", "{name}");
        }
        assert_eq!(message("tostring(getmetatable(''))"), "false");
    }

    #[test]
    fn one_run_leaves_nothing_for_the_next() {
        assert_eq!(
            message("(function() leaked = 1; table.insert = nil; string.find = nil; return 'x' end)()"),
            "x"
        );
        assert_eq!(
            message("type(leaked) .. type(table.insert) .. type(string.find) .. type(('').find)"),
            "nilfunctionfunctionfunction"
        );
    }

    #[test]
    fn loaded_code_stays_in_the_sandbox() {
        assert_eq!(message("loadstring('x = 5 return x + 1')() .. tostring(x)"), "65");
        assert_eq!(message("tostring((loadstring('return type(io)')()))"), "nil");
        assert_eq!(message("tostring((loadstring('\\27LJ')))"), "nil");
    }

    #[test]
    fn an_endless_script_is_ended_even_if_it_catches_errors() {
        for source in [
            "while true do end",
            "while true do pcall(function() while true do end end) end",
            "return string.find(('a'):rep(60), ('a?'):rep(60) .. ('a'):rep(61))",
        ] {
            let answer = run(source);
            assert_eq!(
                answer.map(|health| health.status),
                Some(Status::Unknown),
                "{source}"
            );
        }
        assert_eq!(message("'alive'"), "alive");
    }

    #[test]
    fn a_greedy_script_is_ended() {
        let answer = run("local t = {} while true do t[#t + 1] = ('x'):rep(1000000) .. #t end");
        assert_eq!(answer.map(|health| health.status), Some(Status::Unknown));
        assert_eq!(message("'alive'"), "alive");
    }

    #[test]
    fn endless_recursion_is_an_error() {
        let answer = run("local function f() return 1 + f() end return f()");
        assert_eq!(answer.map(|health| health.status), Some(Status::Unknown));
    }
}
