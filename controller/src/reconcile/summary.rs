//! What lists show of an Application without its tree: images and addresses. Pure.

use argosy_api::annotation;
use argosy_object::{Value, meta};

/// Where people reach what this object stands for: links in annotations, load balancers, hosts of an Ingress.
pub(crate) fn external_urls(object: &Value) -> Vec<String> {
    let annotations = meta::field(object, &["metadata", "annotations"]).and_then(Value::as_object);
    let mut urls: Vec<String> = annotations
        .into_iter()
        .flatten()
        .filter(|(key, _)| key.starts_with(annotation::LINK_PREFIX))
        .filter_map(|(_, value)| value.as_str().map(|text| annotation::link(text).1.to_owned()))
        .collect();
    let ignored = meta::annotation(object, annotation::IGNORE_DEFAULT_LINKS) == Some("true");
    if !ignored
        && meta::kind(object) == "Ingress"
        && matches!(meta::group(object), "networking.k8s.io" | "extensions")
    {
        urls.extend(ingress(object));
    }
    urls.sort_unstable();
    urls.dedup();
    urls
}

/// `scheme://host/path` of each rule; where a rule names no host, the load balancer's addresses.
fn ingress(object: &Value) -> Vec<String> {
    let balancers: Vec<&str> = meta::array_field(object, &["status", "loadBalancer", "ingress"])
        .iter()
        .filter_map(|each| meta::str_field(each, &["hostname"]).or_else(|| meta::str_field(each, &["ip"])))
        .collect();
    let tls: Vec<&str> = meta::array_field(object, &["spec", "tls"])
        .iter()
        .flat_map(|each| {
            meta::array_field(each, &["hosts"])
                .iter()
                .filter_map(Value::as_str)
        })
        .collect();
    let any_tls = !meta::array_field(object, &["spec", "tls"]).is_empty();
    let mut urls = Vec::new();
    for rule in meta::array_field(object, &["spec", "rules"]) {
        let host = meta::str_field(rule, &["host"]).unwrap_or_default();
        let secure = if tls.is_empty() {
            any_tls
        } else {
            tls.contains(&host)
        };
        let scheme = if secure { "https" } else { "http" };
        let hosts: Vec<&str> = if host.is_empty() {
            balancers.clone()
        } else {
            vec![host]
        };
        for host in hosts {
            let paths = meta::array_field(rule, &["http", "paths"]);
            if paths.is_empty() {
                urls.push(format!("{scheme}://{host}"));
            }
            for path in paths {
                let path = meta::str_field(path, &["path"])
                    .unwrap_or_default()
                    .trim_end_matches('*');
                let path = if path == "/" {
                    path
                } else {
                    path.trim_end_matches('/')
                };
                urls.push(format!("{scheme}://{host}{path}"));
            }
        }
    }
    urls
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_ingress_is_reached_at_its_hosts_and_a_link_at_its_url() {
        let mut object = json!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": "web", "annotations": {"link.argocd.argoproj.io/a": "Dashboard|https://dash.example.com"}},
            "spec": {"tls": [{"hosts": ["shop.example.com"]}], "rules": [
                {"host": "shop.example.com", "http": {"paths": [{"path": "/"}, {"path": "/api/*"}]}},
                {"host": "plain.example.com"},
                {"http": {"paths": [{"path": "/x"}]}}]},
            "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}]}}});
        let urls = external_urls(&object);
        assert_eq!(
            urls,
            [
                "http://192.0.2.7/x",
                "http://plain.example.com",
                "https://dash.example.com",
                "https://shop.example.com/",
                "https://shop.example.com/api"
            ]
        );
        meta::set_annotation(&mut object, annotation::IGNORE_DEFAULT_LINKS, "true");
        assert_eq!(external_urls(&object), ["https://dash.example.com"]);
    }
}
