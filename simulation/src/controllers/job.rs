//! A Job runs Pods until enough of them have succeeded or too many have failed.

use argosy_object::{Value, meta};
use serde_json::json;

use super::{Work, controller_reference, is_active, is_ready, key_of, pod_of, put_count, with_condition};

const MANAGER: &str = "kube-controller-manager";

pub(super) fn step(work: &mut Work<'_>, job: &Value) {
    let conditions = meta::array_field(job, &["status", "conditions"]).to_vec();
    let holds = |kind: &str| {
        conditions
            .iter()
            .any(|one| one["type"] == kind && one["status"] == "True")
    };
    if meta::deletion_timestamp(job).is_some() || holds("Complete") || holds("Failed") {
        return;
    }
    let number = |path: &[&str]| meta::i64_field(job, path).and_then(|number| usize::try_from(number).ok());
    let parallelism = number(&["spec", "parallelism"]).unwrap_or(1);
    let completions = number(&["spec", "completions"]).unwrap_or(parallelism);
    let backoff = number(&["spec", "backoffLimit"]).unwrap_or(6);
    let suspended = meta::bool_field(job, &["spec", "suspend"]).unwrap_or_default();
    let pods = work.owned(job, "", "pods");
    let in_phase = |phase: &str| pods.iter().filter(|pod| pod["status"]["phase"] == phase).count();
    let (succeeded, failed) = (in_phase("Succeeded"), in_phase("Failed"));
    let mut active: Vec<Value> = pods.iter().filter(|pod| is_active(pod)).cloned().collect();
    let now = work.stamp();

    if suspended {
        for pod in active.drain(..) {
            work.delete("", "pods", &key_of(&pod));
        }
    } else if failed <= backoff {
        let missing = completions
            .saturating_sub(succeeded)
            .min(parallelism)
            .saturating_sub(active.len());
        for _ in 0..missing {
            let owner = controller_reference(job, "batch/v1", "Job");
            let mut pod = pod_of(&job["spec"]["template"], owner, &[]);
            pod["metadata"]["generateName"] = format!("{}-", meta::name(job)).into();
            meta::set_field(
                &mut pod,
                &["metadata", "finalizers"],
                json!(["batch.kubernetes.io/job-tracking"]),
            );
            active.extend(work.create("", "v1", meta::namespace(job), "pods", MANAGER, &pod));
        }
    }
    let mut status = json!({"terminating": 0, "uncountedTerminatedPods": {}, "ready": active.iter().filter(|pod| is_ready(pod)).count()});
    put_count(&mut status, "active", active.len());
    put_count(&mut status, "succeeded", succeeded);
    put_count(&mut status, "failed", failed);
    let started = meta::str_field(job, &["status", "startTime"])
        .unwrap_or(&now)
        .to_owned();
    let mut conditions = conditions;
    if suspended {
        conditions = with_condition(
            &conditions,
            "Suspended",
            "True",
            "JobSuspended",
            "Job suspended",
            &now,
        );
    } else {
        status["startTime"] = started.into();
        if succeeded >= completions {
            let message = "Reached expected number of succeeded pods";
            for kind in ["SuccessCriteriaMet", "Complete"] {
                conditions = with_condition(&conditions, kind, "True", "CompletionsReached", message, &now);
            }
            status["completionTime"] = now.as_str().into();
        } else if failed > backoff {
            let message = "Job has reached the specified backoff limit";
            for kind in ["FailureTarget", "Failed"] {
                conditions = with_condition(&conditions, kind, "True", "BackoffLimitExceeded", message, &now);
            }
        }
    }
    for condition in &mut conditions {
        if condition.get("lastProbeTime").is_none() {
            condition["lastProbeTime"] = now.as_str().into();
        }
    }
    if !conditions.is_empty() {
        status["conditions"] = conditions.into();
    }
    work.set_status(MANAGER, job, status);
}
