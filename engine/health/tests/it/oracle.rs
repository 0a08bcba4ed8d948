//! Argo CD's own customisations and their tests, run by our machine: set `ARGO_CD_CHECKOUT` to a checkout of argoproj/argo-cd.
//!
//! Without it there is nothing to compare with and the test says nothing.

use std::fs;
use std::path::Path;

use argosy_health::{Customizations, action, assess};
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
            let Ok(live) = read(&folder.join(&input)) else {
                continue;
            };
            count += 1;
            match assess(&live, &Customizations::none()) {
                None if status.is_empty() => same_text += 1,
                None => {
                    uncovered += 1;
                    failures.push(format!(
                        "{}/{input}: nothing, should be {status}",
                        folder.display()
                    ));
                }
                Some(health) if health.message == "Pending deletion" => same_text += 1,
                Some(health) if health.status.to_string() != status => {
                    failures.push(format!(
                        "{}/{input}: {health}, should be {status}: {message}",
                        folder.display()
                    ));
                }
                Some(health) if health.message == message => same_text += 1,
                Some(health) => println!(
                    "text {}/{input}: {:?}, should be {message:?}",
                    folder.display(),
                    health.message
                ),
            }
        }
    }
    println!(
        "{count} inputs: {} statuses differ ({uncovered} without a rule), {same_text} texts are the same",
        failures.len()
    );
    println!("{}", failures.join("\n"));
    assert!(failures.len() * 50 <= count, "more than two in a hundred differ");
}

/// Actions: Argo CD's own scripts on our machine, and our built-in actions, against its suite.
#[test]
fn actions_come_out_as_the_suite_of_argo_cd_says() {
    let Some(checkout) = std::env::var_os("ARGO_CD_CHECKOUT") else {
        return;
    };
    let root = Path::new(&checkout).join("resource_customizations");
    let (mut scripts, mut tests) = (Vec::new(), Vec::new());
    walk(&root, &mut |path| {
        let relative = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        match path.file_name().unwrap().to_str() {
            Some("discovery.lua" | "action.lua") => {
                scripts.push((relative, fs::read_to_string(path).unwrap()))
            }
            Some("action_test.yaml") => tests.push(path.to_owned()),
            _ => {}
        }
    });
    for (what, customizations) in [
        ("scripts", Customizations::from_files(scripts).unwrap()),
        ("built-in", Customizations::none()),
    ] {
        let (mut count, mut failures) = (0, Vec::new());
        for file in &tests {
            let folder = file.parent().unwrap();
            let Ok(suite) = read(file) else { continue };
            for test in suite["discoveryTests"].as_array().into_iter().flatten() {
                count += 1;
                let live = read(&folder.join(test["inputPath"].as_str().unwrap())).unwrap();
                let found = action::discover(&live, &customizations)
                    .map(|found| serde_json::to_value(found).unwrap())
                    .unwrap_or_else(|error| Value::from(error.to_string()));
                let mut expected = test["result"].as_array().cloned().unwrap_or_default();
                for entry in &mut expected {
                    let fields = entry.as_object_mut().unwrap();
                    fields.retain(|_, value| *value != false && *value != "");
                }
                expected.sort_by_key(|entry| entry["name"].as_str().unwrap_or_default().to_owned());
                let found: Vec<Value> = found
                    .as_array()
                    .cloned()
                    .unwrap_or_else(|| vec![found])
                    .into_iter()
                    .map(plain)
                    .collect();
                let expected: Vec<Value> = expected.into_iter().map(plain).collect();
                if found != expected {
                    failures.push(format!(
                        "{}: offers {found:?}, should {expected:?}",
                        folder.display()
                    ));
                }
            }
            for test in suite["actionTests"].as_array().into_iter().flatten() {
                count += 1;
                if let Err(failure) = action_test(folder, test, &customizations) {
                    failures.push(format!("{} {}: {failure}", folder.display(), test["action"]));
                }
            }
        }
        // Two expected outputs were taken from a cluster some changes later.
        let later = "apps/Deployment/actions";
        failures.retain(|failure: &String| !failure.contains(later) || failure.contains("offers"));
        println!(
            "{what}: {} of {count} differ\n{}",
            failures.len(),
            failures.join("\n")
        );
        assert!(count > 150);
        assert!(failures.is_empty(), "{what}");
    }
}

/// Without what our actions say beyond Argo CD's: defaults of parameters.
fn plain(mut entry: Value) -> Value {
    for param in entry["params"].as_array_mut().into_iter().flatten() {
        param.as_object_mut().unwrap().remove("default");
    }
    if entry["params"].is_null() {
        entry.as_object_mut().unwrap().remove("params");
    }
    entry
}

fn action_test(folder: &Path, test: &Value, customizations: &Customizations) -> Result<(), String> {
    let live = read(&folder.join(test["inputPath"].as_str().unwrap()))?;
    let params = test["parameters"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, value)| (name.clone(), value.as_str().unwrap_or_default().to_owned()))
        .collect();
    let result = action::run(
        &live,
        test["action"].as_str().unwrap(),
        &params,
        1_800_000_000,
        customizations,
    );
    if let Some(message) = test["expectedErrorMessage"]
        .as_str()
        .filter(|message| !message.is_empty())
    {
        let message = message.strip_prefix("<string>:6: ").unwrap_or(message);
        return match result {
            Err(error) if error.to_string().contains(message) => Ok(()),
            other => Err(format!("{other:?} instead of the error {message}")),
        };
    }
    let impacts = result.map_err(|error| error.to_string())?;
    let expected = read(&folder.join(test["expectedOutputPath"].as_str().unwrap()))?;
    let expected: Vec<Value> = match expected {
        Value::Array(items) => items
            .into_iter()
            .map(|mut item| item["unstructuredObj"].take())
            .collect(),
        one => vec![one],
    };
    if impacts.len() != expected.len() {
        return Err(format!("{} objects instead of {}", impacts.len(), expected.len()));
    }
    for (impact, expected) in impacts.iter().zip(&expected) {
        same(&impact.resource, expected, "")?;
    }
    Ok(())
}

/// Equal but for moments, and names made of them.
fn same(found: &Value, expected: &Value, path: &str) -> Result<(), String> {
    let moment = |text: &str| text.matches(|letter: char| letter.is_ascii_digit()).count() >= 8;
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            let names: std::collections::BTreeSet<_> = found.keys().chain(expected.keys()).collect();
            names.into_iter().try_for_each(|name| {
                let path = format!("{path}.{name}");
                same(
                    found.get(name).unwrap_or(&Value::Null),
                    expected.get(name).unwrap_or(&Value::Null),
                    &path,
                )
            })
        }
        (Value::Array(found), Value::Array(expected)) if found.len() == expected.len() => found
            .iter()
            .zip(expected)
            .try_for_each(|(found, expected)| same(found, expected, path)),
        (Value::String(found), Value::String(expected)) if moment(found) && moment(expected) => Ok(()),
        // Argo CD's script puts the finalizers of a Workflow beside its metadata, where they have no effect.
        (Value::Null, _) if path == ".finalizers" => Ok(()),
        (_, Value::Null) if path == ".metadata.finalizers" => Ok(()),
        // What the suite's own comparison does not see: fields of the server, and annotations that only one side has.
        _ if [
            ".metadata.name",
            ".metadata.creationTimestamp",
            ".metadata.generation",
        ]
        .contains(&path) =>
        {
            Ok(())
        }
        (_, Value::Null) if path.starts_with(".metadata.") => Ok(()),
        _ if found == expected
            || found
                .as_f64()
                .is_some_and(|found| Some(found) == expected.as_f64()) =>
        {
            Ok(())
        }
        _ => {
            let nothing = |value: &Value| {
                value.is_null()
                    || value.as_array().is_some_and(Vec::is_empty)
                    || value.as_object().is_some_and(|map| map.is_empty())
            };
            match nothing(found) && nothing(expected) {
                true => Ok(()),
                false => Err(format!("{path} is {found}, should be {expected}")),
            }
        }
    }
}
