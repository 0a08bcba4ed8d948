//! Actions: who decides which there are, what they make of an object, and what is refused.

use std::collections::BTreeMap;

use argosy_health::Customizations;
use argosy_health::action::{ActionError, Definitions, Operation, discover, run};
use argosy_object::Value;
use serde_json::json;

/// 2027-01-15T08:00:00Z
const NOW: i64 = 1_800_000_000;

fn deployment() -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "annotations": {}},
        "spec": {"replicas": 2, "template": {"metadata": {"labels": {}}, "spec": {"securityContext": {}}}},
    })
}

fn params(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

fn names(customizations: &Customizations, live: &Value) -> Vec<String> {
    let actions = discover(live, customizations).unwrap();
    actions
        .into_iter()
        .map(|action| {
            if action.disabled {
                format!("({})", action.name)
            } else {
                action.name
            }
        })
        .collect()
}

fn with_actions(text: &str) -> Customizations {
    let mut customizations = Customizations::none();
    customizations.insert_actions("apps/Deployment", Definitions::parse(text, false).unwrap());
    customizations
}

const OWN: &str = "discovery.lua: |\n  return {['blue-green'] = {displayName = 'Switch'}, restart = {disabled = true}}\ndefinitions:\n- name: blue-green\n  action.lua: |\n    obj.spec.replicas = obj.spec.replicas + 1\n    return obj\n";

#[test]
fn built_in_actions_are_offered_by_name_and_what_makes_no_sense_is_disabled() {
    let none = Customizations::none();
    assert_eq!(
        names(&none, &deployment()),
        ["pause", "restart", "(resume)", "scale"]
    );
    let mut paused = deployment();
    paused["spec"]["paused"] = json!(true);
    assert_eq!(names(&none, &paused), ["(pause)", "restart", "resume", "scale"]);
    assert_eq!(
        names(&none, &json!({"apiVersion": "v1", "kind": "ConfigMap"})),
        [""; 0]
    );
}

#[test]
fn a_restart_touches_the_pod_template_alone() {
    let impacts = run(
        &deployment(),
        "restart",
        &params(&[]),
        NOW,
        &Customizations::none(),
    )
    .unwrap();
    let mut expected = deployment();
    expected["spec"]["template"]["metadata"]["annotations"] =
        json!({"kubectl.kubernetes.io/restartedAt": "2027-01-15T08:00:00Z"});
    assert_eq!(
        (impacts[0].operation, &impacts[0].resource),
        (Operation::Patch, &expected)
    );
}

#[test]
fn a_number_is_asked_for_and_checked() {
    let scale = |given: &[(&str, &str)]| {
        run(
            &deployment(),
            "scale",
            &params(given),
            NOW,
            &Customizations::none(),
        )
    };
    assert_eq!(
        scale(&[("replicas", "5")]).unwrap()[0].resource["spec"]["replicas"],
        json!(5)
    );
    let refused = |given: &[(&str, &str)]| scale(given).unwrap_err().to_string();
    assert_eq!(refused(&[("replicas", "many")]), "invalid number: many");
    assert_eq!(refused(&[("replicas", "NaN")]), "invalid number: NaN");
    assert_eq!(refused(&[]), "replicas parameter is required");
}

#[test]
fn a_job_is_made_from_its_cron_job() {
    let cron_job = json!({
        "apiVersion": "batch/v1", "kind": "CronJob",
        "metadata": {"name": "report", "namespace": "shop", "uid": "u"},
        "spec": {"schedule": "@daily", "jobTemplate": {
            "metadata": {"labels": {"app": "report"}, "creationTimestamp": null},
            "spec": {"template": {"spec": {"restartPolicy": "Never", "securityContext": {}}}},
        }},
    });
    let impacts = run(
        &cron_job,
        "create-job",
        &params(&[]),
        NOW,
        &Customizations::none(),
    )
    .unwrap();
    assert_eq!(impacts.len(), 1);
    assert_eq!(impacts[0].operation, Operation::Create);
    assert_eq!(
        impacts[0].resource,
        json!({
            "apiVersion": "batch/v1", "kind": "Job",
            "metadata": {
                "name": "report-2701150800", "namespace": "shop",
                "labels": {"app": "report"},
                "annotations": {"cronjob.kubernetes.io/instantiate": "manual"},
                "ownerReferences": [{"apiVersion": "batch/v1", "kind": "CronJob", "name": "report", "uid": "u",
                    "blockOwnerDeletion": true, "controller": true}],
            },
            "spec": {"template": {"spec": {"restartPolicy": "Never"}}},
        })
    );
}

#[test]
fn scripts_of_the_settings_stand_for_the_built_in_actions_unless_they_join_them() {
    assert_eq!(
        names(&with_actions(OWN), &deployment()),
        ["blue-green", "(restart)"]
    );
    let merged = with_actions(&format!("{OWN}mergeBuiltinActions: true\n"));
    assert_eq!(
        names(&merged, &deployment()),
        ["blue-green", "pause", "(restart)", "(resume)", "scale"]
    );
    // An action without a script of its own is the built-in one.
    assert!(run(&deployment(), "restart", &params(&[]), NOW, &merged).is_ok());
}

#[test]
fn empty_maps_come_back_from_a_script_as_empty_maps() {
    let impacts = run(&deployment(), "blue-green", &params(&[]), NOW, &with_actions(OWN)).unwrap();
    let mut expected = deployment();
    expected["spec"]["replicas"] = json!(3);
    assert_eq!(impacts[0].resource, expected);
}

#[test]
fn a_script_may_create_objects_beside_the_one_it_patches() {
    let customizations = with_actions(
        "discovery.lua: return {}\ndefinitions:\n- name: copy\n  action.lua: |\n    local copy = {apiVersion = 'v1', kind = 'ConfigMap', metadata = {name = actionParams.name}}\n    return {{operation = 'create', resource = copy}, {operation = 'patch', resource = obj}}\n",
    );
    let impacts = run(
        &deployment(),
        "copy",
        &params(&[("name", "c")]),
        NOW,
        &customizations,
    )
    .unwrap();
    assert_eq!(impacts[0].operation, Operation::Create);
    assert_eq!(impacts[0].resource["metadata"]["name"], "c");
    assert_eq!(
        (impacts[1].operation, &impacts[1].resource),
        (Operation::Patch, &deployment())
    );
}

#[test]
fn what_is_no_object_is_refused() {
    for (script, reason) in [
        ("return 'obj'", "expect table output from Lua script, not string"),
        ("return {}", ""),
        (
            "return {{operation = 'delete', resource = obj}}",
            "unsupported operation: delete",
        ),
        (
            "obj.self = obj return obj",
            "cannot encode recursively nested tables to JSON",
        ),
        (
            "obj.spec[1] = 'x' return obj",
            "cannot encode mixed or invalid key types",
        ),
        (
            "return {{operation = 'create', resource = {}}}",
            "Object 'Kind' is missing in what the action returned",
        ),
        ("error('not today', 0)", "not today"),
        ("while true do end", "Lua script took too long"),
    ] {
        let text =
            format!("discovery.lua: return {{}}\ndefinitions:\n- {{name: x, action.lua: \"{script}\"}}\n");
        match run(&deployment(), "x", &params(&[]), NOW, &with_actions(&text)) {
            Err(error) => assert_eq!(error.to_string(), reason, "{script}"),
            Ok(impacts) => assert!(impacts.is_empty() && reason.is_empty(), "{script}"),
        }
    }
    let unknown = run(&deployment(), "fly", &params(&[]), NOW, &Customizations::none());
    assert!(
        matches!(unknown, Err(ActionError::Unknown { name, kind }) if name == "fly" && kind == "apps/Deployment")
    );
    assert!(
        Definitions::parse("definitions: [{name: x}]", false)
            .unwrap_err()
            .contains("definitions[0]")
    );
}
