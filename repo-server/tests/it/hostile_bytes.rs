//! SEC-BUDGET (R20, R21): content that is small to send and large to read. Each is refused with the limit named, before it is read
//! in full, and leaves nothing behind.

use std::io::Write as _;

use argosy_api::v1alpha1::{ApplicationSource, ApplicationSourceHelm, Repository};
use argosy_repo_server::Error;
use argosy_repo_server::render::Request;

use crate::render::{Fixture, names, request};
use crate::support::{Http, Repo, answer, config_map};

fn at(path: &str) -> ApplicationSource {
    ApplicationSource {
        path: path.into(),
        ..ApplicationSource::default()
    }
}

/// Nine aliases of nine aliases of …: a billion and more of the same.
fn laughs() -> String {
    let mut text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\na0: &a0 [lol]\n".to_owned();
    for nth in 1..10 {
        let before = vec![format!("*a{}", nth - 1); 9].join(", ");
        text += &format!("a{nth}: &a{nth} [{before}]\n");
    }
    text
}

fn deep(depth: usize) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {}{}\n",
        "[".repeat(depth),
        "]".repeat(depth)
    )
}

/// The error of a source, which must be one that says what is wrong with the content.
async fn refused(fixture: &Fixture, repo: &Repo, source: ApplicationSource) -> String {
    let error = fixture.render(&request(repo, source)).await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Limit { .. } | Error::Manifest { .. } | Error::Render { .. } | Error::Source(_)
        ),
        "{error:?}"
    );
    error.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_budget_yaml_and_json_that_grow_or_nest_are_refused() {
    let fixture = Fixture::new();
    let (laughs, deep_yaml) = (laughs(), deep(100_000));
    let deep_json = format!(
        "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"a\"}},\"data\":{}1{}}}",
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    for (name, text) in [
        ("a.yaml", &laughs),
        ("a.yaml", &deep_yaml),
        ("a.json", &deep_json),
    ] {
        let repo = Repo::with(&[(&format!("app/{name}"), text)]);
        let error = refused(&fixture, &repo, at("app")).await;
        assert!(
            error.starts_with(&format!("failed to parse app/{name}")),
            "{error}"
        );
    }
    // The same through the tools, which must neither die nor starve their neighbours.
    let chart = ("app/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n");
    let template = config_map("a", "{{ .Values | toJson | trunc 10 | quote }}");
    for text in [&laughs, &deep_yaml] {
        let repo = Repo::with(&[
            chart,
            ("app/values.yaml", text),
            ("app/templates/a.yaml", &template),
        ]);
        refused(&fixture, &repo, at("app")).await;
        let repo = Repo::with(&[
            ("app/kustomization.yaml", "resources: [a.yaml]\n"),
            ("app/a.yaml", text),
        ]);
        refused(&fixture, &repo, at("app")).await;
    }
    let repo = Repo::with(&[("app/a.jsonnet", "local f(x) = f(x + 1) + 1; f(0)")]);
    refused(&fixture, &repo, at("app")).await;
    let repo = Repo::with(&[("app/a.jsonnet", "std.repeat([1], 1e10)")]);
    refused(&fixture, &repo, at("app")).await;

    let repo = Repo::with(&[("app/a.yaml", &config_map("fine", "1"))]);
    assert_eq!(
        names(&fixture.render(&request(&repo, at("app"))).await.unwrap()),
        ["ConfigMap/fine"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_budget_a_schema_that_names_itself_and_a_template_that_has_no_end_are_refused() {
    let fixture = Fixture::with(|args| {
        args.exec_timeout = std::time::Duration::from_secs(20);
        args.render_worker_memory = 512 << 20;
    });
    let chart = ("app/Chart.yaml", "apiVersion: v2\nname: web\nversion: 1.0.0\n");
    let template = config_map("a", "b");
    for schema in [
        "{\"$ref\": \"#\"}",
        "{\"allOf\": [{\"$ref\": \"#\"}, {\"$ref\": \"#\"}]}",
        "{\"$ref\": \"file:///etc/passwd\"}",
        "{\"$ref\": \"http://127.0.0.1:1/schema.json\"}",
    ] {
        let repo = Repo::with(&[
            chart,
            ("app/values.yaml", "a: 1\n"),
            ("app/values.schema.json", schema),
            ("app/templates/a.yaml", &template),
        ]);
        let outcome = fixture.render(&request(&repo, at("app"))).await;
        assert!(!format!("{outcome:?}").contains("root:"), "{schema}: {outcome:?}");
        assert!(
            !matches!(outcome, Err(Error::Worker { .. })),
            "{schema} costs no worker its life: {outcome:?}"
        );
    }
    for text in [
        "{{ define \"x\" }}{{ include \"x\" . }}{{ end }}{{ include \"x\" . }}",
        "a: {{ repeat 2000000000 \"x\" }}",
    ] {
        let repo = Repo::with(&[chart, ("app/templates/a.yaml", text)]);
        let error = fixture.render(&request(&repo, at("app"))).await.unwrap_err();
        assert!(
            matches!(
                error,
                Error::Render { .. } | Error::Limit { .. } | Error::Worker { .. }
            ),
            "{text}: {error:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r20_a_manifest_of_a_hundred_megabytes_is_refused_and_rendered_where_the_limit_allows() {
    let object = config_map("x", &"y".repeat(900));
    let many = vec![object; 100_000].join("---\n");
    let repo = Repo::with(&[("app/all.yaml", &many), ("small/a.yaml", &config_map("a", "1"))]);
    let fixture = Fixture::new();
    let error = refused(&fixture, &repo, at("app")).await;
    assert!(
        error.contains("limit of") && error.contains("10000000"),
        "{error}"
    );
    assert_eq!(
        names(&fixture.render(&request(&repo, at("small"))).await.unwrap()),
        ["ConfigMap/a"]
    );

    // Half as much, where an operator allows it.
    let half = vec![config_map("x", &"y".repeat(900)); 20_000].join("---\n");
    let repo = Repo::with(&[("app/all.yaml", &half)]);
    let fixture = Fixture::with(|args| args.max_combined_directory_manifests_size = 256_000_000);
    let outcome = fixture.render(&request(&repo, at("app"))).await;
    match outcome {
        Ok(objects) => assert_eq!(objects.len(), 20_000),
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_budget_a_file_that_is_small_in_its_pack_is_not_unpacked_beyond_its_limit() {
    // 64 MB of zeros are 64 KB in a pack, and so are the deltas between such files.
    let repo = Repo::new();
    std::fs::create_dir_all(repo.path().join("app")).unwrap();
    for nth in 0..2_u8 {
        let mut data = vec![b' '; 64 << 20];
        data[nth as usize] = b'x';
        std::fs::write(repo.path().join("app/a.yaml"), &data).unwrap();
        repo.commit(&[]);
    }
    let error = refused(&Fixture::new(), &repo, at("app")).await;
    assert!(error.contains("limit of"), "{error}");
}

/// A chart repository whose only archive is what a function writes.
async fn archive(data: Vec<u8>) -> (Http, Request) {
    let server = Http::start(None, move |seen| match seen.path.as_str() {
        "/index.yaml" => answer(
            200,
            "apiVersion: v1\nentries:\n  web:\n  - {name: web, version: 1.0.0, urls: [web.tgz]}\n",
        ),
        "/web.tgz" => answer(200, data.clone()),
        _ => answer(404, ""),
    })
    .await;
    let url = format!("http://{}", server.address);
    let request = Request {
        repo: Repository {
            repo: url.clone(),
            r#type: "helm".into(),
            ..Repository::default()
        },
        source: ApplicationSource {
            repo_url: url,
            chart: "web".into(),
            target_revision: "1.0.0".into(),
            helm: Some(ApplicationSourceHelm::default()),
            ..ApplicationSource::default()
        },
        app_name: "shop".into(),
        namespace: "ns".into(),
        ..Request::default()
    };
    (server, request)
}

fn packed(fill: impl FnOnce(&mut tar::Builder<flate2::write::GzEncoder<Vec<u8>>>)) -> Vec<u8> {
    let encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let mut builder = tar::Builder::new(encoder);
    let chart = b"apiVersion: v2\nname: web\nversion: 1.0.0\n";
    let mut header = tar::Header::new_gnu();
    header.set_size(chart.len() as u64);
    header.set_mode(0o644);
    builder
        .append_data(&mut header, "web/Chart.yaml", &chart[..])
        .unwrap();
    fill(&mut builder);
    builder.into_inner().unwrap().finish().unwrap()
}

/// Names the bomb that this process is to set off, and nothing else.
const BOMB: &str = "ARGOSY_TEST_BOMB";

#[test]
fn r21_a_bomb_costs_two_seconds_and_a_quarter_of_a_gigabyte_at_most() {
    for bomb in ["aliases", "depth", "depth of JSON", "bytes"] {
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "hostile_bytes::one_bomb_alone", "--nocapture"])
            .env(BOMB, bomb)
            .output()
            .unwrap();
        let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && told.contains("it is refused"),
            "{bomb}: {told}"
        );
    }
}

/// Set off by [`r21_a_bomb_costs_two_seconds_and_a_quarter_of_a_gigabyte_at_most`] in a process of its own, so that what it costs
/// is nobody else's.
#[tokio::test(flavor = "multi_thread")]
async fn one_bomb_alone() {
    let Ok(bomb) = std::env::var(BOMB) else { return };
    let fixture = Fixture::with(|args| args.helm_manifest_max_extracted_size = 10_000_000);
    let of_file = |name: &str, text: String| {
        let repo = Repo::with(&[(name, &text)]);
        (request(&repo, at("app")), Some(repo), None)
    };
    let (request, _repo, _server) = match bomb.as_str() {
        "aliases" => of_file("app/a.yaml", laughs()),
        "depth" => of_file("app/a.yaml", deep(100_000)),
        "depth of JSON" => of_file("app/a.json", "[".repeat(1_000_000)),
        _ => {
            let data = packed(|builder| {
                let zeros = std::io::Read::take(std::io::repeat(0), 1 << 30);
                builder
                    .append_data(&mut entry(1 << 30), "web/big", zeros)
                    .unwrap();
            });
            let (server, request) = archive(data).await;
            (request, None, Some(server))
        }
    };
    let before = argosy_runtime::process::usage();
    let outcome = fixture.render(&request).await;
    let after = argosy_runtime::process::usage();
    let error = outcome.unwrap_err();
    assert!(
        !matches!(error, Error::Worker { .. } | Error::Deadline { .. }),
        "{error:?}"
    );
    let cpu = after.cpu.saturating_sub(before.cpu);
    assert!(cpu <= std::time::Duration::from_secs(2), "{cpu:?}");
    assert!(after.rss_peak <= 256 << 20, "{} bytes", after.rss_peak);
    assert_eq!(fixture.leftovers(), Vec::<String>::new());
    println!("it is refused: {error}; {cpu:?}, {} MiB", after.rss_peak >> 20);
}

fn entry(size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(0o644);
    header
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_budget_archives_that_are_bombs_or_lead_out_are_refused_and_leave_nothing() {
    let outside = tempfile::tempdir().unwrap();
    let target = outside.path().join("written");
    let up = format!("web/{}{}", "../".repeat(14), &target.display().to_string()[1..]);
    let absolute = target.display().to_string();
    let raw_path = |path: &str, kind: tar::EntryType, link: &str| {
        packed(|builder| {
            let mut header = entry(0);
            header.set_entry_type(kind);
            // As an attacker writes it: the library's own way refuses such names.
            let name = &mut header.as_gnu_mut().unwrap().name;
            let bytes = path.as_bytes();
            name[..bytes.len().min(100)].copy_from_slice(&bytes[..bytes.len().min(100)]);
            let place = &mut header.as_gnu_mut().unwrap().linkname;
            let bytes = link.as_bytes();
            place[..bytes.len().min(100)].copy_from_slice(&bytes[..bytes.len().min(100)]);
            header.set_cksum();
            builder.append(&header, std::io::empty()).unwrap();
        })
    };
    let bombs: Vec<(&str, Vec<u8>)> = vec![
        (
            "one large file",
            packed(|builder| {
                let zeros = std::io::Read::take(std::io::repeat(0), 64 << 20);
                builder
                    .append_data(&mut entry(64 << 20), "web/big", zeros)
                    .unwrap();
            }),
        ),
        (
            "very many files",
            packed(|builder| {
                for nth in 0..120_000 {
                    builder
                        .append_data(&mut entry(0), format!("web/f{nth}"), std::io::empty())
                        .unwrap();
                }
            }),
        ),
        ("a path that climbs", raw_path(&up, tar::EntryType::Regular, "")),
        (
            "an absolute path",
            raw_path(&absolute, tar::EntryType::Regular, ""),
        ),
        (
            "a hard link that leads out",
            raw_path("web/values.yaml", tar::EntryType::Link, "/etc/passwd"),
        ),
        ("a device", raw_path("web/values.yaml", tar::EntryType::Char, "")),
        ("no archive", b"not an archive".to_vec()),
        ("half an archive", {
            let mut whole = packed(|builder| {
                builder
                    .append_data(&mut entry(1 << 20), "web/x", vec![7_u8; 1 << 20].as_slice())
                    .unwrap();
            });
            whole.truncate(whole.len() / 2);
            whole
        }),
        ("text that unpacks for ever", {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            for _ in 0..64 {
                encoder.write_all(&[0; 1 << 20]).unwrap();
            }
            encoder.finish().unwrap()
        }),
    ];
    for (what, data) in bombs {
        let fixture = Fixture::with(|args| args.helm_manifest_max_extracted_size = 10_000_000);
        let (_server, request) = archive(data).await;
        let outcome = fixture.render(&request).await;
        let text = format!("{outcome:?}");
        assert!(!text.contains("root:"), "{what}: {text}");
        // What is left out of an archive may leave a chart; what breaks a bound may not.
        let may_render = what.contains("link") || what.contains("device") || what.contains("path");
        assert!(outcome.is_err() || may_render, "{what}: {text}");
        assert!(!target.exists(), "{what}");
        assert_eq!(fixture.leftovers(), Vec::<String>::new(), "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sec_budget_an_index_without_end_is_refused() {
    let server = Http::start(None, |_| {
        let mut index = b"apiVersion: v1\nentries:\n".to_vec();
        index.resize(160 << 20, b'#');
        answer(200, index)
    })
    .await;
    let url = format!("http://{}", server.address);
    let request = Request {
        repo: Repository {
            repo: url.clone(),
            r#type: "helm".into(),
            ..Repository::default()
        },
        source: ApplicationSource {
            repo_url: url,
            chart: "web".into(),
            target_revision: "1.x".into(),
            ..ApplicationSource::default()
        },
        ..Request::default()
    };
    let error = Fixture::new().render(&request).await.unwrap_err();
    assert!(matches!(error, Error::Limit { .. }), "{error:?}");
}
