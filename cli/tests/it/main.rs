//! The offline commands as people and CI use them: files in, text and an exit code out.
#![allow(clippy::unwrap_used)]

mod cases;
mod client_certificate;
mod grpc_web;
mod integrity;
mod remote;

use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

const DEPLOYMENT: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: shop
  namespace: default
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
      - name: shop
        image: registry.example.com/shop:1
        resources: {limits: {cpu: 1000m, memory: 1024Mi}}
";

/// A folder of files in which the program runs.
struct Desk(TempDir);

impl Desk {
    fn with(files: &[(&str, &str)]) -> Desk {
        let folder = TempDir::new().unwrap();
        for (name, content) in files {
            let file = folder.path().join(name);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, content).unwrap();
        }
        Desk(folder)
    }

    fn run(&self, line: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_argosy"))
            .args(line.split_whitespace())
            .current_dir(self.0.path())
            .output()
            .unwrap()
    }

    /// stdout and the exit code.
    fn answer(&self, line: &str) -> (String, i32) {
        let output = self.run(line);
        assert!(
            output.stderr.is_empty(),
            "{line}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        (
            String::from_utf8(output.stdout).unwrap(),
            output.status.code().unwrap(),
        )
    }

    fn json(&self, line: &str) -> Value {
        serde_json::from_str(&self.answer(line).0).unwrap()
    }

    /// stderr of a command that must refuse: exit code 2 and nothing on stdout.
    fn refusal(&self, line: &str) -> String {
        let output = self.run(line);
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(output.stdout.is_empty(), "{line}");
        String::from_utf8(output.stderr).unwrap()
    }
}

#[test]
fn diff_says_path_values_and_reason() {
    // The quantities differ in spelling only: 1000m is 1, 1024Mi is 1Gi.
    let live = DEPLOYMENT
        .replace("replicas: 2", "replicas: 3")
        .replace("1000m", "'1'")
        .replace("1024Mi", "1Gi");
    let desk = Desk::with(&[("desired.yaml", DEPLOYMENT), ("live.yaml", &live)]);
    let (text, code) = desk.answer("diff --desired desired.yaml --live live.yaml");
    assert_eq!(code, 1);
    assert!(
        text.contains("spec.replicas: set in Git to another value"),
        "{text}"
    );
    let verdict = desk.json("diff --desired desired.yaml --live live.yaml -o json");
    assert_eq!(verdict["synced"], json!(false));
    let [difference] = verdict["differences"].as_array().unwrap().as_slice() else {
        panic!("one difference is expected: {verdict:#}");
    };
    assert_eq!(
        (&difference["path"], &difference["desired"], &difference["live"]),
        (&json!("spec.replicas"), &json!(2), &json!(3))
    );
    assert!(difference["why"].as_str().is_some_and(|why| !why.is_empty()));
}

#[test]
fn diff_of_equals_is_synced() {
    let desk = Desk::with(&[("a.yaml", DEPLOYMENT)]);
    assert_eq!(
        desk.answer("diff --desired a.yaml --live a.yaml"),
        ("synced\n".to_owned(), 0)
    );
    assert_eq!(
        desk.json("diff --desired a.yaml --live a.yaml -o json"),
        json!({"synced": true, "differences": []})
    );
}

#[test]
fn diff_takes_marks_of_tracking_for_no_difference() {
    let live = r#"
apiVersion: v1
kind: ConfigMap
metadata:
  name: c
  namespace: shop
  annotations:
    argocd.argoproj.io/tracking-id: shop:/ConfigMap:shop/c
    kubectl.kubernetes.io/last-applied-configuration: |
      {"apiVersion":"v1","kind":"ConfigMap","metadata":{"annotations":{"argocd.argoproj.io/tracking-id":"shop:/ConfigMap:shop/c"},"name":"c","namespace":"shop"},"data":{"a":"1"}}
data: {a: "1"}
"#;
    let desired = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: shop}\ndata: {a: \"1\"}\n";
    let desk = Desk::with(&[("desired.yaml", desired), ("live.yaml", live)]);
    assert_eq!(
        desk.answer("diff --desired desired.yaml --live live.yaml"),
        ("synced\n".to_owned(), 0)
    );
}

#[test]
fn hooks_and_what_has_an_owner_are_no_difference_and_nothing_to_delete() {
    let hook = |name: &str, of: &str| {
        format!(
            "---\napiVersion: batch/v1\nkind: Job\nmetadata:\n  name: {name}\n  namespace: default\n  annotations: {{argocd.argoproj.io/hook: {of}}}\n"
        )
    };
    let owned = "---\napiVersion: v1\nkind: Pod\nmetadata:\n  name: shop-1\n  namespace: default\n  ownerReferences:\n  - {apiVersion: apps/v1, kind: ReplicaSet, name: shop, uid: u}\n";
    let desired = [DEPLOYMENT, &hook("before", "PreSync"), &hook("by-hand", "Skip")].concat();
    let live = [DEPLOYMENT, &hook("of-before", "PostSync"), owned].concat();
    let desk = Desk::with(&[("desired.yaml", &desired), ("live.yaml", &live)]);
    assert_eq!(
        desk.answer("diff --desired desired.yaml --live live.yaml"),
        ("synced\n".to_owned(), 0)
    );
    let plan = desk.json("plan --desired desired.yaml --live live.yaml --prune -o json");
    let names: Vec<&str> = plan
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|step| step["name"].as_str())
        .filter(|name| !name.is_empty())
        .collect();
    assert_eq!(names, ["before", "shop"]);
}

#[test]
fn diff_counts_what_others_set_only_where_that_is_asked_for_and_names_them() {
    let live = r#"
apiVersion: v1
kind: ConfigMap
metadata:
  name: c
  namespace: shop
  managedFields:
  - {manager: argocd-controller, operation: Update, apiVersion: v1, fieldsV1: {"f:data": {"f:a": {}}}}
  - {manager: kubectl-edit, operation: Update, apiVersion: v1, fieldsV1: {"f:data": {"f:b": {}}}}
data: {a: "1", b: "2"}
"#;
    let desired = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: shop}\ndata: {a: \"1\"}\n";
    let strict = desired.replace(
        "namespace: shop}",
        "namespace: shop, annotations: {argocd.argoproj.io/sync-options: Strict=true}}",
    );
    let annotated = live.replace(
        "  namespace: shop\n",
        "  namespace: shop\n  annotations: {argocd.argoproj.io/sync-options: Strict=true}\n",
    );
    let desk = Desk::with(&[
        ("desired.yaml", desired),
        ("live.yaml", live),
        ("strict.yaml", &strict),
        ("annotated.yaml", &annotated),
    ]);
    let (text, code) = desk.answer("diff --desired desired.yaml --live live.yaml");
    assert_eq!((text.as_str(), code), ("synced\n", 0));
    let verdict = desk.json("diff --desired strict.yaml --live annotated.yaml -o json");
    let [difference] = verdict["differences"].as_array().unwrap().as_slice() else {
        panic!("one difference is expected: {verdict:#}");
    };
    assert_eq!(difference["path"], "data.b");
    assert_eq!(difference["owners"], json!(["kubectl-edit"]));
    let (text, _) = desk.answer("diff --desired strict.yaml --live annotated.yaml");
    assert!(text.contains("; now set by kubectl-edit"), "{text}");
}

#[test]
fn diff_heeds_the_applications_rules() {
    let live = DEPLOYMENT.replace("replicas: 2", "replicas: 3");
    let app = "\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata: {name: shop}
spec:
  project: default
  destination: {namespace: default, server: https://kubernetes.default.svc}
  source: {repoURL: https://git.example.com/shop.git, path: .}
  ignoreDifferences:
  - {group: apps, kind: Deployment, jsonPointers: [/spec/replicas]}
";
    let desk = Desk::with(&[
        ("desired.yaml", DEPLOYMENT),
        ("live.yaml", &live),
        ("app.yaml", app),
    ]);
    let (_, code) = desk.answer("diff --desired desired.yaml --live live.yaml --app app.yaml");
    assert_eq!(code, 0);
}

#[test]
fn plan_orders_waves_and_prunes_only_when_asked() {
    let map = |name: &str, wave: &str| {
        format!(
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: default\n  annotations: {{argocd.argoproj.io/sync-wave: '{wave}'}}\n"
        )
    };
    let desired = format!("{}---\n{}", map("late", "2"), map("early", "-1"));
    let desk = Desk::with(&[("desired.yaml", &desired), ("live.yaml", &map("left", "0"))]);
    let steps = |line: &str| -> Vec<(i64, String, String)> {
        let steps = desk.json(line);
        let step = |step: &Value| {
            let text = |field: &str| step[field].as_str().unwrap().to_owned();
            assert_eq!(step["phase"], "Sync");
            if step["action"] != "wait" {
                assert_eq!(
                    (&step["kind"], &step["namespace"]),
                    (&json!("ConfigMap"), &json!("default"))
                );
            }
            (step["wave"].as_i64().unwrap(), text("action"), text("name"))
        };
        steps.as_array().unwrap().iter().map(step).collect()
    };
    let own = |wave, action: &str, name: &str| (wave, action.to_owned(), name.to_owned());
    let kept = steps("plan --desired desired.yaml --live live.yaml -o json");
    assert!(kept.contains(&own(0, "skip-prune", "left")), "{kept:?}");
    let pruned = steps("plan --desired desired.yaml --live live.yaml --prune -o json");
    assert!(
        pruned
            .iter()
            .any(|(_, action, name)| action == "prune" && name == "left")
    );
    let applied: Vec<_> = pruned.iter().filter(|(_, action, _)| action == "apply").collect();
    assert_eq!(applied, [&own(-1, "apply", "early"), &own(2, "apply", "late")]);
    let (text, _) = desk.answer("plan --desired desired.yaml --live live.yaml");
    assert!(
        text.contains("Sync        -1  apply             ConfigMap early in default\n"),
        "{text}"
    );
    assert!(
        text.contains("wait              (resources are healthy)\n"),
        "{text}"
    );
}

#[test]
fn health_follows_built_in_rules_and_scripts() {
    let widget = "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\nstatus: {ok: false}\n";
    let script = "\
hs = {}
if obj.status.ok then
  hs.status = 'Healthy'
else
  hs.status = 'Degraded'
  hs.message = 'not ok'
end
return hs
";
    let claim = "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: a}\nstatus: {phase: Bound}\n";
    let desk = Desk::with(&[
        ("widget.yaml", widget),
        ("claim.yaml", claim),
        ("rules/example.com/Widget/health.lua", script),
    ]);
    assert_eq!(
        desk.json("health -f widget.yaml --customizations rules -o json"),
        json!({"status": "Degraded", "message": "not ok"})
    );
    assert_eq!(desk.json("health -f claim.yaml -o json")["status"], "Healthy");
}

#[test]
fn render_prints_the_objects_of_a_folder_in_order() {
    let list = "\
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: ConfigMap, metadata: {name: one}}
- {apiVersion: v1, kind: ConfigMap, metadata: {name: two}}
";
    let desk = Desk::with(&[
        ("app/b.yaml", DEPLOYMENT),
        ("app/a.yaml", list),
        ("app/ignored.txt", "text"),
    ]);
    let rendered = desk.json("render --repo . --path app -o json");
    let names: Vec<_> = rendered
        .as_array()
        .unwrap()
        .iter()
        .map(|object| object["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["one", "two", "shop"]);
}

#[test]
fn crds_are_the_three_of_argo_cd() {
    let desk = Desk::with(&[]);
    let text = desk.answer("crds").0;
    for name in ["applications", "applicationsets", "appprojects"] {
        assert!(text.contains(&format!("name: {name}.argoproj.io")), "{name}");
    }
}

#[test]
fn wrong_input_names_the_file_and_the_way_out() {
    let desk = Desk::with(&[
        ("good.yaml", DEPLOYMENT),
        (
            "open.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a\n",
        ),
        ("nameless.yaml", "a: b\n"),
        ("empty.yaml", "---\n"),
    ]);
    let says = |line: &str, parts: &[&str]| {
        let text = desk.refusal(line);
        for part in parts {
            assert!(text.contains(part), "{line}: {text}");
        }
    };
    says(
        "diff --desired gone.yaml --live good.yaml",
        &["gone.yaml", "No such file"],
    );
    says(
        "diff --desired open.yaml --live good.yaml",
        &["open.yaml", "line 3"],
    );
    says(
        "plan --desired nameless.yaml --live good.yaml",
        &["nameless.yaml", "`apiVersion` is missing"],
    );
    says(
        "diff --desired good.yaml --live good.yaml --app good.yaml",
        &["good.yaml", "one Application is expected"],
    );
    says("health -f empty.yaml", &["empty.yaml", "no object"]);
    says("render --repo . --path gone", &["gone", "does not exist"]);
    says(
        "render --repo . --path ../elsewhere",
        &["../elsewhere", "outside"],
    );
    says("diff --desired good.yaml", &["--live"]);
}

#[test]
fn actions_are_listed_and_run_without_a_cluster() {
    let scripts = "\
apiVersion: v1
kind: ConfigMap
metadata: {name: argocd-cm, namespace: argocd}
data:
  resource.customizations.health.apps_Deployment: return {status = 'Healthy', message = 'says the script'}
  resource.customizations.actions.apps_Deployment: |
    discovery.lua: return {double = {displayName = 'Double'}}
    definitions:
    - name: double
      action.lua: |
        obj.spec.replicas = obj.spec.replicas * actionParams.factor
        return obj
";
    let desk = Desk::with(&[("web.yaml", DEPLOYMENT), ("argocd-cm.yaml", scripts)]);
    let offered = |line: &str| -> Vec<String> {
        let actions = desk.json(line);
        let actions = actions.as_array().unwrap().iter();
        actions
            .map(|action| action["name"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(
        offered("action list -f web.yaml -o json"),
        ["pause", "restart", "resume", "scale"]
    );
    let scaled = desk.json("action run scale -f web.yaml --param replicas=7 -o json");
    assert_eq!(scaled[0]["operation"], "patch");
    assert_eq!(scaled[0]["resource"]["spec"]["replicas"], 7);

    let own = "--customizations argocd-cm.yaml";
    assert_eq!(
        offered(&format!("action list -f web.yaml {own} -o json")),
        ["double"]
    );
    let doubled = desk.json(&format!(
        "action run double -f web.yaml {own} --param factor=3 -o json"
    ));
    assert_eq!(doubled[0]["resource"]["spec"]["replicas"], 6);
    assert_eq!(
        desk.json(&format!("health -f web.yaml {own} -o json")),
        json!({"status": "Healthy", "message": "says the script"})
    );

    for (line, word) in [
        (
            "action run fly -f web.yaml",
            "no action \"fly\" for apps/Deployment",
        ),
        (
            "action run scale -f web.yaml --param replicas=many",
            "invalid number: many",
        ),
        (
            "action run scale -f web.yaml --param replicas",
            "NAME=VALUE is expected",
        ),
        ("action list -f web.yaml --customizations nowhere", "nowhere"),
    ] {
        let output = desk.run(line);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(output.stdout.is_empty() && said.contains(word), "{line}: {said}");
    }
}

#[test]
fn an_empty_field_of_an_application_is_an_absent_one() {
    let app = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: a}\nspec:\n  ignoreDifferences:\n  syncPolicy:\n";
    let desk = Desk::with(&[
        ("desired.yaml", DEPLOYMENT),
        ("live.yaml", DEPLOYMENT),
        ("app.yaml", app),
    ]);
    let (text, code) = desk.answer("diff --desired desired.yaml --live live.yaml --app app.yaml");
    assert_eq!((text.as_str(), code), ("synced\n", 0));
}
