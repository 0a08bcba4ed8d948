//! Pod: what is fatal for one that should run for ever is only a delay for one that should end.

use argosy_object::{Value, meta};

use crate::fields::{Fields, Malformed};
use crate::status::{Health, Status};

const IGNORE_RESTART_POLICY: &str = "argocd.argoproj.io/ignore-restart-policy";

pub(crate) fn assess(live: &Value) -> Result<Health, Malformed> {
    let object = Fields::of("Pod", live);
    let runs_for_ever = object.text(&["spec", "restartPolicy"])? == "Always" || treated_as_long_running(live);

    // A hook that waits for its image may still succeed after the sync has ended, so a pod that is meant to end is not called broken early.
    if runs_for_ever && let Some(message) = stuck_containers(&object)? {
        return Ok(Health::degraded(message));
    }

    let message = object.text(&["status", "message"])?;
    match object.text(&["status", "phase"])? {
        "Pending" => Ok(Health::progressing(message)),
        "Succeeded" => Ok(Health::new(Status::Healthy, message)),
        "Failed" if !message.is_empty() => Ok(Health::degraded(message)),
        "Failed" => Ok(Health::degraded(failed_container(&object)?)),
        "Running" if runs_for_ever => running(&object, message),
        "Running" if matches!(object.text(&["spec", "restartPolicy"])?, "OnFailure" | "Never") => {
            Ok(Health::progressing(message))
        }
        _ => Ok(Health::unknown(message)),
    }
}

/// The annotation lifts a pod that may end to one that should not; a hook keeps its own meaning.
fn treated_as_long_running(live: &Value) -> bool {
    meta::annotation(live, IGNORE_RESTART_POLICY) == Some("true") && !is_hook(live)
}

fn is_hook(live: &Value) -> bool {
    match meta::annotation(live, "argocd.argoproj.io/hook") {
        Some(phases) => phases != "Skip",
        None => meta::annotation(live, "helm.sh/hook").is_some(),
    }
}

/// Why a Pod does not get on, in the words of `kubectl get pods`; nothing if it does, or may yet. A container that is down for a moment
/// between two of its restarts says the same as one that waits for the next.
pub(crate) fn stuck(live: &Value) -> Option<&str> {
    let containers = ["initContainerStatuses", "containerStatuses"];
    let mut statuses = containers
        .iter()
        .flat_map(|list| meta::array_field(live, &["status", list]));
    statuses.find_map(|status| {
        let waiting = meta::str_field(status, &["state", "waiting", "reason"]).unwrap_or_default();
        let restarts = meta::i64_field(status, &["restartCount"]).unwrap_or_default();
        let ready = meta::bool_field(status, &["ready"]).unwrap_or_default();
        let failed = meta::i64_field(status, &["lastState", "terminated", "exitCode"]);
        match waiting {
            "ErrImagePull" | "ImagePullBackOff" => Some("ImagePullBackOff"),
            _ if is_fatal(waiting) => Some(waiting),
            _ if !ready && restarts > 1 && failed.is_some_and(|code| code != 0) => Some("CrashLoopBackOff"),
            _ => None,
        }
    })
}

fn is_fatal(reason: &str) -> bool {
    reason.starts_with("Err") || reason.ends_with("Error") || reason.ends_with("BackOff")
}

/// The messages of containers that wait for a reason which does not go away by itself.
fn stuck_containers(object: &Fields<'_>) -> Result<Option<String>, Malformed> {
    let mut messages = Vec::new();
    for container in object.list(&["status", "containerStatuses"])? {
        let reason = container.text(&["state", "waiting", "reason"])?;
        if is_fatal(reason) {
            messages.push(container.text(&["state", "waiting", "message"])?);
        }
    }
    Ok((!messages.is_empty()).then(|| messages.join(", ")))
}

/// The first container that says why it ended badly; init containers run first and are asked first.
fn failed_container(object: &Fields<'_>) -> Result<String, Malformed> {
    let init = object.list(&["status", "initContainerStatuses"])?;
    for container in init.chain(object.list(&["status", "containerStatuses"])?) {
        let terminated = container.at(&["state", "terminated"]);
        let message = terminated.text(&["message"])?;
        let exit_code = terminated.int(&["exitCode"])?;
        if !message.is_empty() {
            return Ok(message.to_owned());
        }
        if terminated.text(&["reason"])? == "OOMKilled" {
            return Ok("OOMKilled".to_owned());
        }
        if exit_code != 0 {
            return Ok(format!(
                "container {:?} failed with exit code {exit_code}",
                container.text(&["name"])?
            ));
        }
    }
    Ok(String::new())
}

fn running(object: &Fields<'_>, message: &str) -> Result<Health, Malformed> {
    for condition in object.list(&["status", "conditions"])? {
        if condition.text(&["type"])? == "Ready" {
            if condition.text(&["status"])? == "True" {
                return Ok(Health::new(Status::Healthy, message));
            }
            break;
        }
    }
    for container in object.list(&["status", "containerStatuses"])? {
        if container.at(&["lastState", "terminated"]).exists() {
            return Ok(Health::degraded(message));
        }
    }
    Ok(Health::progressing(message))
}
