//! Whether a folder holds a file of a name, as a plugin's discovery asks.

use std::path::Path;

use argosy_api::glob::Glob;

/// Entries that are looked at before a folder is too large to say.
const MAX_ENTRIES: usize = 1_000_000;

/// Whether a file or folder below matches a shell pattern, whose star stops at slashes.
pub(crate) fn file_name(folder: &Path, pattern: &str) -> Result<bool, String> {
    let pattern = pattern.trim_start_matches("./");
    let glob = Glob::path(pattern).map_err(|error| error.to_string())?;
    // The pattern says how deep: nothing below that can match.
    let depth = pattern.split('/').count();
    any(folder, depth, &|path| glob.matches(path))
}

/// Whether a file or folder below matches a pattern whose `**` goes through folders.
pub(crate) fn glob(folder: &Path, pattern: &str) -> Result<bool, String> {
    let pattern = pattern.trim_start_matches("./");
    let glob = globset::GlobBuilder::new(pattern).literal_separator(true).build();
    let matcher = glob.map_err(|error| error.to_string())?.compile_matcher();
    any(folder, usize::MAX, &|path| matcher.is_match(path))
}

fn any(folder: &Path, depth: usize, matches: &dyn Fn(&str) -> bool) -> Result<bool, String> {
    let mut pending = vec![(folder.to_owned(), String::new(), 1)];
    let mut seen = 0;
    while let Some((folder, prefix, level)) = pending.pop() {
        for entry in std::fs::read_dir(&folder).map_err(|error| error.to_string())? {
            let entry = entry.map_err(|error| error.to_string())?;
            seen += 1;
            if seen > MAX_ENTRIES {
                return Err(format!("there are more than {MAX_ENTRIES} files"));
            }
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let path = format!("{prefix}{name}");
            if matches(&path) {
                return Ok(true);
            }
            if level < depth && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push((entry.path(), format!("{path}/"), level + 1));
            }
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn stars_stop_at_slashes_unless_there_are_two() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("a/b")).unwrap();
        std::fs::write(dir.path().join("a/b/app.cue"), "").unwrap();
        std::fs::write(dir.path().join("top.yaml"), "").unwrap();
        for (pattern, by_name, by_glob) in [
            ("top.yaml", true, true),
            ("./t?p.yaml", true, true),
            ("*.cue", false, false),
            ("a/*/*.cue", true, true),
            ("**/*.cue", false, true),
            ("**/top.yaml", false, true),
            ("a/b", true, true),
            ("{top,bottom}.yaml", false, true),
        ] {
            assert_eq!(file_name(dir.path(), pattern), Ok(by_name), "{pattern}");
            assert_eq!(glob(dir.path(), pattern), Ok(by_glob), "{pattern}");
        }
        assert!(file_name(dir.path(), "[").is_err());
    }
}
