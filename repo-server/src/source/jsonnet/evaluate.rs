//! One evaluation of one program, with every file coming through a function.

use super::{Program as Input, Variable};
use rsjsonnet_lang::arena::Arena;
use rsjsonnet_lang::interner::InternedStr;
use rsjsonnet_lang::lexer::LexError;
use rsjsonnet_lang::parser::ParseError;
use rsjsonnet_lang::program::{
    AnalyzeError, Callbacks, EvalError, EvalErrorKind, EvalStackTraceItem, ImportError, LoadError,
    NativeError, Program, Thunk, Value,
};
use rsjsonnet_lang::span::{SourceId, SpanContext, SpanId, SpanManager};
use std::collections::HashMap;

/// Finds the first of some paths that exists, with its content; an error ends the evaluation.
pub(super) type Find<'a> = dyn FnMut(&[String]) -> Result<Option<(String, Vec<u8>)>, String> + 'a;

/// Call depth, as in the reference.
const MAX_STACK: usize = 500;

/// Evaluates a program to JSON text.
pub(super) fn run(input: &Input, find: &mut Find<'_>) -> Result<String, String> {
    let arena = Arena::new();
    let mut program = Program::new(&arena);
    program.set_max_stack(MAX_STACK);
    let mut files = Files {
        find,
        search: &input.search,
        sources: HashMap::new(),
        loaded: HashMap::new(),
        refused: None,
    };
    let mut seen = std::collections::HashSet::new();
    for variable in &input.ext_vars {
        if !seen.insert(&variable.name) {
            return Err(format!("external variable {} is given twice", variable.name));
        }
        let thunk = files.variable(&mut program, variable, "extvar")?;
        let name = program.intern_str(&variable.name);
        program.add_ext_var(name, &thunk);
    }
    let main = files.load(&mut program, &input.file, input.text.clone().into_bytes())?;
    let mut value = program
        .eval_value(&main, &mut files)
        .map_err(|e| files.eval_error(&program, &e))?;
    if value.is_function() {
        let mut arguments = Vec::new();
        for variable in &input.tlas {
            let thunk = files.variable(&mut program, variable, "tla")?;
            arguments.push((program.intern_str(&variable.name), thunk));
        }
        let function = program.value_to_thunk(&value);
        value = program
            .eval_call(&function, &[], &arguments, &mut files)
            .map_err(|e| files.eval_error(&program, &e))?;
    }
    program
        .manifest_json(&value, false)
        .map_err(|e| files.eval_error(&program, &e))
}

struct Files<'a, 'p> {
    find: &'a mut Find<'a>,
    search: &'a [String],
    sources: HashMap<SourceId, (String, Vec<u8>)>,
    loaded: HashMap<String, Thunk<'p>>,
    /// The real reason of a failed import, which the callback's error cannot carry.
    refused: Option<String>,
}

impl<'p> Files<'_, 'p> {
    fn variable(
        &mut self,
        program: &mut Program<'p>,
        variable: &Variable,
        kind: &str,
    ) -> Result<Thunk<'p>, String> {
        if variable.code {
            self.load(
                program,
                &format!("<{kind}:{}>", variable.name),
                variable.value.clone().into_bytes(),
            )
        } else {
            Ok(program.value_to_thunk(&Value::string(&variable.value)))
        }
    }

    fn load(&mut self, program: &mut Program<'p>, name: &str, text: Vec<u8>) -> Result<Thunk<'p>, String> {
        let (context, source) = program.span_manager_mut().insert_source_context(text.len());
        let loaded = program.load_source(context, &text, true, name);
        self.sources.insert(source, (name.to_owned(), text));
        loaded.map_err(|e| self.load_error(program, &e))
    }

    fn resolve(
        &mut self,
        program: &Program<'p>,
        from: SpanId,
        path: &str,
    ) -> Result<(String, Vec<u8>), String> {
        if path.starts_with('/') {
            return Err(format!("import {path:?}: absolute paths are not allowed"));
        }
        let importing = self.file_of(program.span_manager(), from).unwrap_or_default();
        let directory = importing
            .rsplit_once('/')
            .map(|(directory, _)| directory)
            .unwrap_or_default();
        let mut candidates = Vec::new();
        for base in std::iter::once(directory).chain(self.search.iter().map(String::as_str)) {
            let candidate =
                normal(base, path).ok_or_else(|| format!("import {path:?}: outside of the repository"));
            match candidate {
                Ok(candidate) if !candidates.contains(&candidate) => candidates.push(candidate),
                Ok(_) => {}
                // Another base may keep it inside.
                Err(error)
                    if candidates.is_empty() && base == self.search.last().map_or("", String::as_str) =>
                {
                    return Err(error);
                }
                Err(_) => {}
            }
        }
        (self.find)(&candidates)?
            .ok_or_else(|| format!("import {path:?}: no such file in {}", candidates.join(", ")))
    }

    fn file_of(&self, spans: &SpanManager, span: SpanId) -> Option<String> {
        let (context, ..) = spans.get_span(span);
        let SpanContext::Source(source) = spans.get_context(context);
        Some(self.sources.get(source)?.0.clone())
    }

    /// `file:line` of a span.
    fn place(&self, spans: &SpanManager, span: SpanId) -> Option<String> {
        let (context, start, _) = spans.get_span(span);
        let SpanContext::Source(source) = spans.get_context(context);
        let (name, text) = self.sources.get(source)?;
        let line = text.iter().take(start).filter(|byte| **byte == b'\n').count() + 1;
        Some(format!("{name}:{line}"))
    }

    fn load_error(&self, program: &Program<'p>, error: &LoadError) -> String {
        let (span, message) = match error {
            LoadError::Lex(error) => (lex_span(error), words(&format!("{error:?}"))),
            LoadError::Parse(ParseError::Expected { span, instead, .. }) => {
                (*span, format!("unexpected {}", words(&format!("{instead:?}"))))
            }
            LoadError::Analyze(error) => analysis(error),
        };
        match self.place(program.span_manager(), span) {
            Some(place) => format!("{place}: {message}"),
            None => message,
        }
    }

    fn eval_error(&mut self, program: &Program<'p>, error: &EvalError) -> String {
        let message = match &error.kind {
            EvalErrorKind::ExplicitError { message, .. } | EvalErrorKind::Other { message, .. } => {
                message.clone()
            }
            EvalErrorKind::AssertFailed {
                message: Some(message),
                ..
            } => message.clone(),
            EvalErrorKind::AssertFailed { .. } => "assertion failed".into(),
            EvalErrorKind::StackOverflow => "max stack frames exceeded".into(),
            EvalErrorKind::InfiniteRecursion => "infinite recursion".into(),
            EvalErrorKind::UnknownObjectField { field_name, .. } => {
                format!("field does not exist: {field_name}")
            }
            EvalErrorKind::UnknownExtVar { name, .. } => format!("undefined external variable: {name}"),
            EvalErrorKind::CallParamNotBound { param_name, .. } => format!("missing argument: {param_name}"),
            EvalErrorKind::UnknownCallParam { param_name, .. } => {
                format!("function has no parameter {param_name}")
            }
            EvalErrorKind::ImportFailed { path, .. } => self
                .refused
                .take()
                .unwrap_or_else(|| format!("couldn't import {path:?}")),
            EvalErrorKind::ManifestFunction => "couldn't manifest function as JSON".into(),
            other => words(&format!("{other:?}")),
        };
        let spans = program.span_manager();
        let own = match &error.kind {
            EvalErrorKind::ExplicitError { span, .. }
            | EvalErrorKind::AssertFailed { span, .. }
            | EvalErrorKind::UnknownObjectField { span, .. }
            | EvalErrorKind::ImportFailed { span, .. } => Some(*span),
            EvalErrorKind::UnknownCallParam { span, .. }
            | EvalErrorKind::CallParamNotBound { span, .. }
            | EvalErrorKind::Other { span, .. } => *span,
            _ => None,
        };
        let own = own.and_then(|span| self.place(spans, span));
        let traced = || {
            error.stack_trace.iter().rev().find_map(|item| {
                let span = match item {
                    EvalStackTraceItem::Expr { span }
                    | EvalStackTraceItem::Variable { span, .. }
                    | EvalStackTraceItem::Import { span } => Some(*span),
                    EvalStackTraceItem::Call { span, .. }
                    | EvalStackTraceItem::ArrayItem { span, .. }
                    | EvalStackTraceItem::ObjectField { span, .. } => *span,
                    _ => None,
                };
                self.place(spans, span?)
            })
        };
        match own.or_else(traced) {
            Some(place) => format!("{place}: {message}"),
            None => message,
        }
    }
}

impl<'p> Callbacks<'p> for Files<'_, 'p> {
    fn import(
        &mut self,
        program: &mut Program<'p>,
        from: SpanId,
        path: &str,
    ) -> Result<Thunk<'p>, ImportError> {
        let loaded =
            self.resolve(program, from, path)
                .and_then(|(name, text)| match self.loaded.get(&name) {
                    Some(thunk) => Ok(thunk.clone()),
                    None => {
                        let thunk = self.load(program, &name, text)?;
                        self.loaded.insert(name, thunk.clone());
                        Ok(thunk)
                    }
                });
        loaded.map_err(|message| {
            self.refused = Some(message);
            ImportError
        })
    }

    fn import_str(
        &mut self,
        program: &mut Program<'p>,
        from: SpanId,
        path: &str,
    ) -> Result<String, ImportError> {
        let text = self.resolve(program, from, path).and_then(|(name, text)| {
            String::from_utf8(text).map_err(|_| format!("import {name:?}: it is not UTF-8"))
        });
        text.map_err(|message| {
            self.refused = Some(message);
            ImportError
        })
    }

    fn import_bin(
        &mut self,
        program: &mut Program<'p>,
        from: SpanId,
        path: &str,
    ) -> Result<Vec<u8>, ImportError> {
        self.resolve(program, from, path)
            .map(|(_, data)| data)
            .map_err(|message| {
                self.refused = Some(message);
                ImportError
            })
    }

    fn trace(&mut self, _program: &mut Program<'p>, _message: &str, _stack: &[EvalStackTraceItem]) {}

    fn native_call(
        &mut self,
        _: &mut Program<'p>,
        _: InternedStr<'p>,
        _: &[Value<'p>],
    ) -> Result<Value<'p>, NativeError> {
        Err(NativeError)
    }
}

/// Joins and normalises; `None` when it leaves the root.
fn normal(base: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = base.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

fn lex_span(error: &LexError) -> SpanId {
    match *error {
        LexError::InvalidChar { span, .. }
        | LexError::InvalidUtf8 { span, .. }
        | LexError::UnfinishedMultilineComment { span }
        | LexError::LeadingZeroInNumber { span }
        | LexError::MissingFracDigits { span }
        | LexError::MissingExpDigits { span }
        | LexError::MissingDigitAfterUnderscore { span }
        | LexError::ExpOverflow { span }
        | LexError::InvalidEscapeInString { span, .. }
        | LexError::IncompleteUnicodeEscape { span }
        | LexError::InvalidUtf16EscapeSequence { span, .. }
        | LexError::UnfinishedString { span }
        | LexError::MissingLineBreakAfterTextBlockStart { span }
        | LexError::MissingWhitespaceTextBlockStart { span }
        | LexError::InvalidTextBlockTermination { span } => span,
    }
}

fn analysis(error: &AnalyzeError) -> (SpanId, String) {
    match error {
        AnalyzeError::UnknownVariable { span, name } => (*span, format!("unknown variable: {name}")),
        AnalyzeError::SelfOutsideObject { self_span } => {
            (*self_span, "can't use self outside of an object".into())
        }
        AnalyzeError::SuperOutsideObject { super_span } => {
            (*super_span, "can't use super outside of an object".into())
        }
        AnalyzeError::DollarOutsideObject { dollar_span } => {
            (*dollar_span, "no top-level object found".into())
        }
        AnalyzeError::RepeatedLocalName {
            repeated_span, name, ..
        } => (*repeated_span, format!("duplicate local var: {name}")),
        AnalyzeError::RepeatedFieldName {
            repeated_span, name, ..
        } => (*repeated_span, format!("duplicate field: {name}")),
        AnalyzeError::RepeatedParamName {
            repeated_span, name, ..
        } => (*repeated_span, format!("duplicate function parameter: {name}")),
        AnalyzeError::PositionalArgAfterNamed { arg_span } => (
            *arg_span,
            "positional argument after a named argument is not allowed".into(),
        ),
        AnalyzeError::TextBlockAsImportPath { span } => {
            (*span, "block string literals not allowed in imports".into())
        }
        AnalyzeError::ComputedImportPath { span } => (*span, "computed imports are not allowed".into()),
    }
}

/// Turns the name of a variant into words: `DivByZero { span: … }` is `div by zero`.
fn words(debug: &str) -> String {
    let name: String = debug.chars().take_while(|c| c.is_alphanumeric()).collect();
    let mut out = String::new();
    for c in name.chars() {
        if c.is_uppercase() && !out.is_empty() {
            out.push(' ');
        }
        out.extend(c.to_lowercase());
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn eval(text: &str, files: &[(&str, &str)]) -> Result<String, String> {
        let input = Input {
            file: "app/main.jsonnet".into(),
            text: text.into(),
            ext_vars: vec![Variable {
                name: "env".into(),
                value: "prod".into(),
                code: false,
            }],
            tlas: vec![Variable {
                name: "replicas".into(),
                value: "1 + 2".into(),
                code: true,
            }],
            search: vec!["vendor".into(), "app".into()],
        };
        run(&input, &mut |candidates| {
            Ok(candidates.iter().find_map(|path| {
                let (name, text) = files.iter().find(|(name, _)| name == path)?;
                Some(((*name).to_owned(), text.as_bytes().to_vec()))
            }))
        })
    }

    #[test]
    fn variables_arguments_and_imports_work() {
        let files = [
            ("vendor/lib.libsonnet", "{n:: import '../app/n.jsonnet'}"),
            ("app/n.jsonnet", "7"),
            ("app/t.txt", "hi"),
        ];
        let text = "local lib = import 'lib.libsonnet'; function(replicas) {e: std.extVar('env'), r: replicas, n: lib.n, t: importstr 't.txt'}";
        let value: serde_json::Value = serde_json::from_str(&eval(text, &files).unwrap()).unwrap();
        assert_eq!(value, serde_json::json!({"e": "prod", "r": 3, "n": 7, "t": "hi"}));
    }

    #[test]
    fn imports_cannot_leave_the_repository() {
        for path in ["/etc/passwd", "../../etc/passwd", "../../../x"] {
            let error = eval(&format!("importstr '{path}'"), &[]).unwrap_err();
            assert!(
                error.contains("absolute") || error.contains("outside") || error.contains("no such file"),
                "{error}"
            );
        }
    }

    #[test]
    fn errors_name_file_line_and_reason() {
        assert_eq!(
            eval("{\n  a: b,\n}", &[]).unwrap_err(),
            "app/main.jsonnet:2: unknown variable: b"
        );
        let error = eval("{\n  a: error 'too small',\n}", &[]).unwrap_err();
        assert!(
            error.starts_with("app/main.jsonnet:2: ") && error.ends_with("too small"),
            "{error}"
        );
        assert!(eval("{", &[]).unwrap_err().starts_with("app/main.jsonnet:1: "));
        assert!(
            eval("local f(x) = f(x + 1); f(0)", &[])
                .unwrap_err()
                .contains("max stack frames exceeded")
        );
    }
}
