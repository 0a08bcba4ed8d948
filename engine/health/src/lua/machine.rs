//! The guarded Lua machine: one a thread, a fresh environment a run.
//!
//! A script cannot reach files, processes, other scripts' globals or raw environments, and it cannot stay: instructions, time and memory
//! are bounded. The compiler of LuaJIT is off, because compiled traces do not call the hook that enforces the bounds, and the functions of
//! the string library that can run for long are our own ([`super::text`]), because a C function is not interruptible.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mlua::{
    Error, Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value as LuaValue, VmState,
};

use super::{Script, convert, text};
use crate::Value;

/// Longest run of one script.
pub const DEADLINE: Duration = Duration::from_secs(1);
/// Bytes one machine may hold: a big object (1 MiB of JSON takes about 6 MiB as tables) and room to work.
pub const MEMORY_LIMIT: usize = 64 << 20;

/// Instructions of one run. The interpreter does some 10⁸ a second, so that normally this and not the clock ends an endless script, and
/// the same script ends at the same place on a fast and on a slow machine.
const INSTRUCTIONS: u64 = 50_000_000;
const INSTRUCTIONS_PER_CHECK: u32 = 1_000;
/// Compiled scripts a machine keeps: more than there are kinds with scripts.
const COMPILED_MAX: usize = 512;

const BASE: &[&str] = &[
    "_VERSION",
    "assert",
    "error",
    "getmetatable",
    "ipairs",
    "next",
    "pairs",
    "pcall",
    "rawequal",
    "rawget",
    "rawset",
    "select",
    "setmetatable",
    "tonumber",
    "tostring",
    "type",
    "unpack",
    "xpcall",
];
const TABLE: &[&str] = &[
    "concat", "foreach", "foreachi", "getn", "insert", "maxn", "remove", "sort",
];
const OS: &[&str] = &["clock", "date", "difftime", "time"];
const STRING: &[&str] = &[
    "byte", "char", "format", "len", "lower", "rep", "reverse", "sub", "upper",
];

thread_local! {
    static MACHINE: RefCell<Option<Machine>> = const { RefCell::new(None) };
}

struct Machine {
    lua: Lua,
    /// What every environment falls back to.
    base: Table,
    /// The libraries by name; each run gets an empty table in front of each, so that what it changes is its own.
    libraries: Vec<(&'static str, Table, bool)>,
    /// By address of the source, which is kept alive beside it.
    compiled: HashMap<usize, (Arc<str>, Function)>,
}

/// Runs `script` with `live` as the global `obj` and hands what it returned to `read`.
///
/// A machine on which a run failed is thrown away: it may be in the middle of something, or full.
pub(super) fn run<T>(
    script: &Script,
    live: &Value,
    params: &BTreeMap<String, String>,
    read: impl FnOnce(LuaValue) -> Result<T, String>,
) -> Result<T, String> {
    MACHINE.with(|slot| {
        let mut slot = slot.borrow_mut();
        let machine = match slot.take() {
            Some(machine) => machine,
            None => Machine::new().map_err(describe)?,
        };
        let machine = slot.insert(machine);
        let answer = machine.run(script, live, params).map_err(describe).and_then(read);
        if answer.is_err() {
            *slot = None;
        }
        answer
    })
}

/// The error as one line for a person: without traceback.
pub(super) fn describe(error: Error) -> String {
    let text = match error {
        Error::RuntimeError(text) | Error::SyntaxError { message: text, .. } => text,
        Error::CallbackError { cause, .. } => describe((*cause).clone()),
        Error::MemoryError(_) => "Lua script used too much memory".to_owned(),
        other => other.to_string(),
    };
    let text = text.strip_prefix("runtime error: ").unwrap_or(&text);
    text.split("\nstack traceback:").next().unwrap_or(text).to_owned()
}

impl Machine {
    fn new() -> mlua::Result<Self> {
        let libraries = StdLib::TABLE | StdLib::OS | StdLib::STRING | StdLib::MATH | StdLib::JIT;
        let lua = Lua::new_with(libraries, LuaOptions::new())?;
        lua.load("jit.off(); jit.flush()").exec()?;
        lua.set_memory_limit(MEMORY_LIMIT)?;

        let globals = lua.globals();
        let table = pick(&lua, &globals.get("table")?, TABLE)?;
        let os = pick(&lua, &globals.get("os")?, OS)?;
        let string = pick(&lua, &globals.get("string")?, STRING)?;
        text::install(&lua, &string)?;
        let math = lua.create_table()?;
        for pair in globals.get::<Table>("math")?.pairs::<LuaValue, LuaValue>() {
            let (name, value) = pair?;
            math.raw_set(name, value)?;
        }

        // Methods on strings go through this metatable, which every run shares: to be read only, and not to be reached.
        let methods = lua.create_table()?;
        methods.raw_set("__index", &string)?;
        methods.raw_set("__metatable", false)?;
        lua.set_type_metatable::<mlua::LuaString>(Some(methods));

        let base = pick(&lua, &globals, BASE)?;
        base.raw_set("print", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
        Ok(Self {
            lua,
            base,
            libraries: vec![
                ("table", table, false),
                ("os", os, false),
                ("string", string, true),
                ("math", math, true),
            ],
            compiled: HashMap::new(),
        })
    }

    fn run(
        &mut self,
        script: &Script,
        live: &Value,
        params: &BTreeMap<String, String>,
    ) -> mlua::Result<LuaValue> {
        let function = self.compiled(&script.source)?;
        let environment = self.environment(script.open_libs)?;
        environment.raw_set("obj", convert::to_lua(&self.lua, live)?)?;
        environment.raw_set(
            "actionParams",
            self.lua
                .create_table_from(params.iter().map(|(name, value)| (name.as_str(), value.as_str())))?,
        )?;
        function.set_environment(environment)?;

        self.arm()?;
        let answer = function.call::<LuaValue>(());
        self.lua.remove_hook();
        answer
    }

    fn compiled(&mut self, source: &Arc<str>) -> mlua::Result<Function> {
        let address = source.as_ptr() as usize;
        if let Some((_, function)) = self.compiled.get(&address) {
            return Ok(function.clone());
        }
        if self.compiled.len() >= COMPILED_MAX {
            self.compiled.clear();
        }
        let function = self
            .lua
            .load(&**source)
            .set_name("=<string>")
            .set_mode(mlua::chunk::ChunkMode::Text)
            .into_function()?;
        self.compiled.insert(address, (source.clone(), function.clone()));
        Ok(function)
    }

    /// A fresh set of globals.
    fn environment(&self, open_libs: bool) -> mlua::Result<Table> {
        let lua = &self.lua;
        let environment = in_front_of(lua, &self.base)?;
        let loaded = lua.create_table()?;
        for (name, library, needs_open) in &self.libraries {
            if *needs_open && !open_libs {
                continue;
            }
            let own = in_front_of(lua, library)?;
            environment.raw_set(*name, &own)?;
            loaded.raw_set(*name, own)?;
        }

        let require_from = loaded.clone();
        environment.raw_set(
            "require",
            lua.create_function(move |_, name: String| {
                match require_from.raw_get::<LuaValue>(name.as_str())? {
                    LuaValue::Nil => Err(Error::runtime(format!("module {name} not found"))),
                    library => Ok(library),
                }
            })?,
        )?;
        let package = lua.create_table()?;
        package.raw_set("loaded", loaded)?;
        package.raw_set("path", "")?;
        environment.raw_set("package", package)?;

        let inside = environment.clone();
        let load = lua.create_function(move |lua, (source, name): (mlua::LuaString, Option<String>)| {
            let source = source.as_bytes().to_vec();
            // Byte code is not checked by the machine and could break out of it.
            if source.starts_with(b"\x1b") {
                return Ok((LuaValue::Nil, Some("attempt to load byte code".to_owned())));
            }
            let chunk = lua
                .load(source)
                .set_name(name.unwrap_or_else(|| "=<string>".to_owned()))
                .set_mode(mlua::chunk::ChunkMode::Text)
                .set_environment(inside.clone());
            match chunk.into_function() {
                Ok(function) => Ok((LuaValue::Function(function), None)),
                Err(error) => Ok((LuaValue::Nil, Some(describe(error)))),
            }
        })?;
        environment.raw_set("loadstring", &load)?;
        environment.raw_set("load", load)?;
        environment.raw_set("_G", &environment)?;
        Ok(environment)
    }

    /// Starts the clock of one run.
    fn arm(&self) -> mlua::Result<()> {
        let deadline = Instant::now() + DEADLINE;
        let used = AtomicU64::new(0);
        self.lua.set_hook(
            HookTriggers::new().every_nth_instruction(INSTRUCTIONS_PER_CHECK),
            move |lua, _| {
                let used = used.fetch_add(u64::from(INSTRUCTIONS_PER_CHECK), Ordering::Relaxed);
                if used < INSTRUCTIONS && Instant::now() < deadline {
                    return Ok(VmState::Continue);
                }
                // From here on every instruction fails: a script that catches the error does not get to the next one.
                lua.set_hook(HookTriggers::new().every_nth_instruction(1), |_, _| {
                    Err(too_long())
                })?;
                Err(too_long())
            },
        )
    }
}

fn too_long() -> Error {
    Error::runtime("Lua script took too long")
}

/// A new table with the named entries of `from`.
fn pick(lua: &Lua, from: &Table, names: &[&str]) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    for name in names {
        table.raw_set(*name, from.raw_get::<LuaValue>(*name)?)?;
    }
    Ok(table)
}

/// An empty table that reads through to `behind` and keeps writes to itself.
fn in_front_of(lua: &Lua, behind: &Table) -> mlua::Result<Table> {
    let metatable = lua.create_table()?;
    metatable.raw_set("__index", behind)?;
    metatable.raw_set("__metatable", false)?;
    let table = lua.create_table()?;
    table.set_metatable(Some(metatable))?;
    Ok(table)
}
