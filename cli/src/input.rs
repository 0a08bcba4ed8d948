//! Files that people hand over. Every error names the file, and the line or field where it can.

use std::fs;
use std::io::IsTerminal as _;
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use argosy_api::v1alpha1::Application;
use argosy_object::{Value, meta, yaml};
use rustix::termios::{self, LocalModes, OptionalActions};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// All documents of a file, `List` objects unfolded, empty documents left out.
pub(crate) fn documents(file: &Path) -> Result<Vec<Value>> {
    let bytes = read(file)?;
    let located = yaml::parse_all(&bytes, &yaml::Limits::default())
        .map_err(|error| anyhow!("{}: {error}", file.display()))?;
    let mut documents = Vec::new();
    for part in located {
        let line = part.line;
        for document in unfold(part.value) {
            check_identity(&document)
                .with_context(|| format!("{}: the document at line {line}", file.display()))?;
            documents.push(document);
        }
    }
    Ok(documents)
}

/// The one Application of a file.
pub(crate) fn application(file: &Path) -> Result<Application> {
    one(file, "Application")
}

/// All objects of one of Argo CD's kinds in a file.
pub(crate) fn all<T: DeserializeOwned>(file: &Path, kind: &str) -> Result<Vec<T>> {
    let mut documents = documents(file)?;
    documents.retain(|document| meta::kind(document) == kind && meta::group(document) == "argoproj.io");
    let read = |mut document| {
        argosy_api::meta::strip_nulls(&mut document);
        serde_json::from_value(document).map_err(|error| anyhow!("{}: {error}", file.display()))
    };
    documents.into_iter().map(read).collect()
}

/// The one object of a kind in a file.
pub(crate) fn one<T: DeserializeOwned>(file: &Path, kind: &str) -> Result<T> {
    let found = all(file, kind)?;
    let [one] = <[T; 1]>::try_from(found).map_err(|found| {
        anyhow!(
            "{}: one {kind} is expected, found {}",
            file.display(),
            found.len()
        )
    })?;
    Ok(one)
}

/// A file's text; `-` is stdin.
pub(crate) fn text(file: &Path) -> Result<String> {
    String::from_utf8(read(file)?).with_context(|| format!("{}: a text in UTF-8 is expected", file.display()))
}

/// The text of a file, if one is given.
pub(crate) fn text_of(file: Option<&Path>) -> Result<String> {
    file.map_or(Ok(String::new()), text)
}

/// Asks the person at a terminal whether to go on; `yes` answers for them. A script, which has no terminal, means what it says.
pub(crate) fn confirmed(question: &str, yes: bool) -> Result<bool> {
    asked(question, yes || !std::io::stdin().is_terminal())
}

/// Asks whether to go on, whoever may answer; `yes` answers for them.
pub(crate) fn asked(question: &str, yes: bool) -> Result<bool> {
    if yes {
        return Ok(true);
    }
    eprint!("{question} [y/n] ");
    let mut answer = String::new();
    let read = std::io::stdin()
        .read_line(&mut answer)
        .context("read the answer")?;
    ensure!(read > 0, "nobody answered: {question}");
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}

/// A line: from a prompt if it is not given.
pub(crate) fn line(given: Option<String>, prompt: &str) -> Result<String> {
    if let Some(line) = given {
        return Ok(line);
    }
    eprint!("{prompt}: ");
    let mut line = String::new();
    std::io::stdin()
        .read_line(&mut line)
        .with_context(|| format!("read what is asked for ({prompt})"))?;
    Ok(line.trim_end_matches(['\n', '\r']).to_owned())
}

/// A password: from a prompt if it is not given. What is typed at a terminal is not shown there.
pub(crate) fn password(given: Option<String>, prompt: &str) -> Result<String> {
    if given.is_some() {
        return line(given, prompt);
    }
    let stdin = std::io::stdin();
    // What is no terminal has no modes, and shows nothing.
    let modes = termios::tcgetattr(&stdin).ok();
    if let Some(modes) = &modes {
        let mut silent = modes.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        termios::tcsetattr(&stdin, OptionalActions::Now, &silent).context("hide what is typed")?;
    }
    let read = line(None, prompt);
    if let Some(modes) = &modes {
        // The end of the line was not shown either.
        eprintln!();
        termios::tcsetattr(&stdin, OptionalActions::Now, modes).context("show what is typed again")?;
    }
    read
}

/// Has a person edit a value as YAML, in `KUBE_EDITOR` or `EDITOR`, until it can be read. None if nothing was changed.
pub(crate) fn edited<T: Serialize + DeserializeOwned>(value: &T) -> Result<Option<T>> {
    let before = yaml::to_string(&serde_json::to_value(value)?);
    let file = tempfile::Builder::new()
        .prefix("argosy-edit-")
        .suffix(".yaml")
        .tempfile()?;
    let mut text = before.clone();
    loop {
        fs::write(file.path(), &text).context("write the text to edit")?;
        let editor = ["KUBE_EDITOR", "EDITOR"]
            .iter()
            .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
            .unwrap_or_else(|| "vi".to_owned());
        let words: Vec<&str> = editor.split_whitespace().collect();
        let status = std::process::Command::new(words[0])
            .args(&words[1..])
            .arg(file.path())
            .status()
            .with_context(|| format!("start the editor {editor:?}; EDITOR names another"))?;
        if !status.success() {
            bail!("the editor ended with {status}: nothing is changed");
        }
        let written = fs::read_to_string(file.path()).context("read what was edited")?;
        let plain: String = written
            .lines()
            .filter(|line| !line.starts_with("# "))
            .map(|line| format!("{line}\n"))
            .collect();
        if plain == before {
            return Ok(None);
        }
        let read = yaml::parse(&plain, &yaml::Limits::default()).map_err(|error| error.to_string());
        match read.and_then(|value| serde_json::from_value(value).map_err(|error| error.to_string())) {
            Ok(value) => return Ok(Some(value)),
            Err(_) if written == text => bail!("the edit was given up: nothing is changed"),
            Err(error) => text = format!("# {}\n{plain}", error.replace('\n', " ")),
        }
    }
}

/// A file's bytes; `-` is stdin.
pub(crate) fn read(file: &Path) -> Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::stdin().lock(), &mut bytes).context("read stdin")?;
        return Ok(bytes);
    }
    fs::read(file).with_context(|| format!("read {}", file.display()))
}

fn unfold(document: Value) -> Vec<Value> {
    if document.is_null() {
        return Vec::new();
    }
    let is_list = meta::is_list(&document) || meta::kind(&document) == "List";
    match document {
        Value::Object(mut list) if is_list => match list.remove("items") {
            Some(Value::Array(items)) => items.into_iter().flat_map(unfold).collect(),
            _ => Vec::new(),
        },
        other => vec![other],
    }
}

fn check_identity(document: &Value) -> Result<()> {
    for (field, text) in [
        ("apiVersion", meta::api_version(document)),
        ("kind", meta::kind(document)),
    ] {
        if text.is_empty() {
            bail!("`{field}` is missing or not a text: it is needed to know what the object is");
        }
    }
    if meta::name(document).is_empty() && meta::generate_name(document).is_empty() {
        bail!("`metadata.name` is missing or not a text");
    }
    Ok(())
}
