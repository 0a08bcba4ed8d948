//! Argo CD's own customisations and their tests, run by our machine: set `ARGO_CD_CHECKOUT` to a checkout of argoproj/argo-cd.
//!
//! Without it there is nothing to compare with and the test says nothing.

use std::fs;
use std::path::Path;

use argosy_health::{Customizations, assess};
use argosy_object::{Value, yaml};

#[test]
fn the_bundled_scripts_of_argo_cd_answer_as_its_tests_say() {
    let Some(checkout) = std::env::var_os("ARGO_CD_CHECKOUT") else {
        return;
    };
    let root = Path::new(&checkout).join("resource_customizations");
    let mut scripts = Vec::new();
    let mut tests = Vec::new();
    walk(&root, &mut |path| {
        let relative = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        match path.file_name().unwrap().to_str() {
            Some("health.lua") => scripts.push((relative, fs::read_to_string(path).unwrap())),
            Some("health_test.yaml") => tests.push(path.to_owned()),
            _ => {}
        }
    });
    let customizations = Customizations::from_files(scripts).unwrap();

    let (mut count, mut failures) = (0, Vec::new());
    for file in tests {
        let folder = file.parent().unwrap();
        let Ok(suite) = read(&file) else { continue };
        for test in suite["tests"].as_array().into_iter().flatten() {
            count += 1;
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let input = text(&test["inputPath"]);
            let expected = (
                text(&test["healthStatus"]["status"]),
                text(&test["healthStatus"]["message"]),
            );
            let answer = match read(&folder.join(&input)) {
                Err(error) => (String::new(), format!("cannot read: {error}")),
                Ok(live) => assess(&live, &customizations).map_or_else(Default::default, |health| {
                    (health.status.to_string(), health.message)
                }),
            };
            // The suite calls the script alone; the whole order asks for a deletion first.
            if answer != expected && answer.1 != "Pending deletion" {
                failures.push(format!(
                    "{}/{input}: expected {expected:?}, is {answer:?}",
                    folder.display()
                ));
            }
        }
    }
    println!("{} of {count} differ\n{}", failures.len(), failures.join("\n"));
    assert!(count > 1_000);
    // What is left is in the suite: inputs that are missing or hold several documents.
    assert!(failures.len() <= 5, "{}", failures.join("\n"));
}

#[test]
fn the_native_rules_answer_as_the_tests_of_argo_cd_say() {
    let Some(checkout) = std::env::var_os("ARGO_CD_CHECKOUT") else {
        return;
    };
    let root = Path::new(&checkout).join("gitops-engine/pkg/health");
    let text = fs::read_to_string(root.join("health_test.go")).unwrap();
    let mut count = 0;
    for line in text.lines() {
        let Some(rest) = line.trim().strip_prefix("assertAppHealth(t, \"./") else {
            continue;
        };
        let Some((file, status)) = rest.split_once("\", HealthStatus") else {
            continue;
        };
        let live = read(&root.join(file)).unwrap();
        let answer = assess(&live, &Customizations::none()).map(|health| health.status.to_string());
        assert_eq!(answer.as_deref(), Some(status.trim_end_matches(')')), "{file}");
        count += 1;
    }
    assert!(count > 40);
}

fn read(path: &Path) -> Result<Value, String> {
    let text = fs::read_to_string(path).map_err(|error| error.to_string())?;
    yaml::parse(&text, &yaml::Limits::default()).map_err(|error| error.to_string())
}

fn walk(folder: &Path, visit: &mut impl FnMut(&Path)) {
    let mut entries: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for entry in entries {
        if entry.is_dir() {
            walk(&entry, visit)
        } else {
            visit(&entry)
        }
    }
}

/// Our own rules against the inputs of Argo CD's suite: the status is compared, and how many messages are the same is told.
#[test]
fn the_built_in_rules_agree_with_the_suite_of_argo_cd() {
    let Some(checkout) = std::env::var_os("ARGO_CD_CHECKOUT") else {
        return;
    };
    let root = Path::new(&checkout).join("resource_customizations");
    let mut tests = Vec::new();
    walk(&root, &mut |path| {
        if path.file_name().is_some_and(|name| name == "health_test.yaml") {
            tests.push(path.to_owned());
        }
    });
    let (mut count, mut same_text, mut uncovered, mut failures) = (0, 0, 0, Vec::new());
    for file in tests {
        let folder = file.parent().unwrap();
        let Ok(suite) = read(&file) else { continue };
        for test in suite["tests"].as_array().into_iter().flatten() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let input = text(&test["inputPath"]);
            let (status, message) = (
                text(&test["healthStatus"]["status"]),
                text(&test["healthStatus"]["message"]),
            );
            let Ok(live) = read(&folder.join(&input)) else { continue };
            count += 1;
            match assess(&live, &Customizations::none()) {
                None if status.is_empty() => same_text += 1,
                None => {
                    uncovered += 1;
                    failures.push(format!("{}/{input}: nothing, should be {status}", folder.display()));
                }
                Some(health) if health.message == "Pending deletion" => same_text += 1,
                Some(health) if health.status.to_string() != status => {
                    failures.push(format!("{}/{input}: {health}, should be {status}: {message}", folder.display()));
                }
                Some(health) if health.message == message => same_text += 1,
                Some(health) => println!("text {}/{input}: {:?}, should be {message:?}", folder.display(), health.message),
            }
        }
    }
    println!("{count} inputs: {} statuses differ ({uncovered} without a rule), {same_text} texts are the same", failures.len());
    println!("{}", failures.join("\n"));
    assert!(failures.len() * 50 <= count, "more than two in a hundred differ");
}
