//! Sources to render, made: charts, overlays, programs and plain directories of the sizes that people have, and a few heavy ones.

use anyhow::Result;
use argosy_test_cluster::git::Repository;

/// What a cluster of today serves, about: group versions and their main kinds.
pub(crate) const API_VERSIONS: [&str; 60] = [
    "v1",
    "v1/ConfigMap",
    "v1/Endpoints",
    "v1/Event",
    "v1/LimitRange",
    "v1/Namespace",
    "v1/Node",
    "v1/PersistentVolume",
    "v1/PersistentVolumeClaim",
    "v1/Pod",
    "v1/PodTemplate",
    "v1/ReplicationController",
    "v1/ResourceQuota",
    "v1/Secret",
    "v1/Service",
    "v1/ServiceAccount",
    "apps/v1",
    "apps/v1/ControllerRevision",
    "apps/v1/DaemonSet",
    "apps/v1/Deployment",
    "apps/v1/ReplicaSet",
    "apps/v1/StatefulSet",
    "autoscaling/v1",
    "autoscaling/v1/HorizontalPodAutoscaler",
    "autoscaling/v2",
    "autoscaling/v2/HorizontalPodAutoscaler",
    "batch/v1",
    "batch/v1/CronJob",
    "batch/v1/Job",
    "certificates.k8s.io/v1",
    "certificates.k8s.io/v1/CertificateSigningRequest",
    "coordination.k8s.io/v1",
    "coordination.k8s.io/v1/Lease",
    "discovery.k8s.io/v1",
    "discovery.k8s.io/v1/EndpointSlice",
    "events.k8s.io/v1",
    "events.k8s.io/v1/Event",
    "flowcontrol.apiserver.k8s.io/v1",
    "networking.k8s.io/v1",
    "networking.k8s.io/v1/Ingress",
    "networking.k8s.io/v1/IngressClass",
    "networking.k8s.io/v1/NetworkPolicy",
    "node.k8s.io/v1",
    "node.k8s.io/v1/RuntimeClass",
    "policy/v1",
    "policy/v1/PodDisruptionBudget",
    "rbac.authorization.k8s.io/v1",
    "rbac.authorization.k8s.io/v1/ClusterRole",
    "rbac.authorization.k8s.io/v1/ClusterRoleBinding",
    "rbac.authorization.k8s.io/v1/Role",
    "rbac.authorization.k8s.io/v1/RoleBinding",
    "scheduling.k8s.io/v1",
    "scheduling.k8s.io/v1/PriorityClass",
    "storage.k8s.io/v1",
    "storage.k8s.io/v1/CSIDriver",
    "storage.k8s.io/v1/CSINode",
    "storage.k8s.io/v1/StorageClass",
    "storage.k8s.io/v1/VolumeAttachment",
    "monitoring.coreos.com/v1",
    "monitoring.coreos.com/v1/ServiceMonitor",
];

/// A ConfigMap with one text.
pub(crate) fn config_map(name: &str, text: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\ndata:\n  text: \"{text}\"\n")
}

fn deployment(name: &str, nth: usize) -> String {
    format!(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: {name}\n  labels: {{app: {name}}}\nspec:\n  replicas: 2\n  \
         selector: {{matchLabels: {{app: {name}}}}}\n  template:\n    metadata: {{labels: {{app: {name}}}}}\n    spec:\n      \
         containers:\n      - name: main\n        image: example.com/{name}:1.{nth}\n        env:\n        - {{name: NUMBER, value: \
         \"{nth}\"}}\n        ports: [{{containerPort: 8080}}]\n        resources: {{requests: {{cpu: 100m, memory: 128Mi}}}}\n"
    )
}

fn service(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\nspec:\n  selector: {{app: {name}}}\n  ports: [{{port: 80, \
         targetPort: 8080}}]\n"
    )
}

/// A class of sources, and the folder of each.
pub(crate) struct Class {
    pub(crate) name: &'static str,
    pub(crate) folders: Vec<String>,
}

/// Writes `count` of each small class (a quarter as many programs) and the heavy ones.
pub(crate) fn write(repo: &Repository, count: usize) -> Result<Vec<Class>> {
    let class =
        |name: &'static str, count: usize, write: &dyn Fn(&str, usize) -> Result<()>| -> Result<Class> {
            let folders: Vec<String> = (0..count).map(|nth| format!("{name}/{nth}")).collect();
            for (nth, folder) in folders.iter().enumerate() {
                write(folder, nth)?;
            }
            Ok(Class { name, folders })
        };
    let mut classes = vec![
        class("small", count, &|folder, nth| small_chart(repo, folder, nth))?,
        class("kustomize", count, &|folder, nth| overlay(repo, folder, nth))?,
        class("jsonnet", count / 4, &|folder, nth| program(repo, folder, nth))?,
        class("plain", count, &|folder, nth| plain(repo, folder, nth))?,
    ];
    heavy_overlay(repo, "heavy/overlay")?;
    umbrella(repo, "heavy/umbrella")?;
    templates(repo, "heavy/templates")?;
    classes.push(Class {
        name: "heavy",
        folders: ["heavy/overlay", "heavy/umbrella", "heavy/templates"]
            .map(str::to_owned)
            .to_vec(),
    });
    Ok(classes)
}

/// What `helm create` makes, about: six templates with helpers.
fn small_chart(repo: &Repository, folder: &str, nth: usize) -> Result<()> {
    let write = |path: &str, text: &str| repo.write(&format!("{folder}/{path}"), text);
    write(
        "Chart.yaml",
        &format!("apiVersion: v2\nname: web{nth}\nversion: 1.0.{nth}\nappVersion: 1.{nth}\n"),
    )?;
    write(
        "values.yaml",
        &format!(
            "replicas: 2\nimage: {{repository: example.com/web, tag: \"1.{nth}\"}}\nservice: {{port: 80}}\ningress: {{enabled: true, \
                  host: web{nth}.example.com}}\nserviceAccount: {{create: true}}\nautoscaling: {{enabled: true, max: 9}}\nconfig: {{a: \
                  one, b: two, number: {nth}}}\nresources: {{requests: {{cpu: 100m, memory: 128Mi}}}}\n"
        ),
    )?;
    write(
        "templates/_helpers.tpl",
        "{{- define \"name\" -}}{{ .Release.Name }}-{{ .Chart.Name | trunc 63 | trimSuffix \"-\" }}{{- end }}\n\
         {{- define \"labels\" -}}\napp.kubernetes.io/name: {{ .Chart.Name }}\napp.kubernetes.io/instance: {{ .Release.Name }}\n\
         app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}\nhelm.sh/chart: {{ printf \"%s-%s\" .Chart.Name .Chart.Version | \
         replace \"+\" \"_\" }}\n{{- end }}\n",
    )?;
    let head = |kind: &str, api: &str| {
        format!(
            "apiVersion: {api}\nkind: {kind}\nmetadata:\n  name: {{{{ include \"name\" . }}}}\n  labels:\n    {{{{- include \"labels\" . | \
                 nindent 4 }}}}\n"
        )
    };
    write(
        "templates/deployment.yaml",
        &(head("Deployment", "apps/v1")
            + "spec:\n  replicas: {{ .Values.replicas }}\n  selector:\n    matchLabels:\n      {{- include \"labels\" . | nindent 6 }}\n  \
               template:\n    metadata:\n      annotations: {checksum: {{ toYaml .Values.config | sha256sum }}}\n      labels:\n        \
               {{- include \"labels\" . | nindent 8 }}\n    spec:\n      containers:\n      - name: {{ .Chart.Name }}\n        image: \
               \"{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}\"\n        ports: [{name: http, \
               containerPort: 8080}]\n        resources:\n          {{- toYaml .Values.resources | nindent 10 }}\n"),
    )?;
    write(
        "templates/service.yaml",
        &(head("Service", "v1")
            + "spec:\n  ports: [{port: {{ .Values.service.port }}, targetPort: http}]\n  selector:\n    {{- include \"labels\" . | nindent 4 \
               }}\n"),
    )?;
    write(
        "templates/account.yaml",
        &("{{- if .Values.serviceAccount.create }}\n".to_owned()
            + &head("ServiceAccount", "v1")
            + "{{- end }}\n"),
    )?;
    write(
        "templates/ingress.yaml",
        &("{{- if .Values.ingress.enabled }}\n".to_owned()
            + &head("Ingress", "networking.k8s.io/v1")
            + "spec:\n  rules:\n  - host: {{ .Values.ingress.host | quote }}\n    http:\n      paths:\n      - {path: /, pathType: Prefix, \
               backend: {service: {name: {{ include \"name\" . }}, port: {number: {{ .Values.service.port }}}}}}\n{{- end }}\n"),
    )?;
    write(
        "templates/scaler.yaml",
        &("{{- if .Values.autoscaling.enabled }}\n".to_owned()
            + &head("HorizontalPodAutoscaler", "autoscaling/v2")
            + "spec:\n  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: {{ include \"name\" . }}}\n  maxReplicas: {{ \
               .Values.autoscaling.max }}\n{{- end }}\n"),
    )?;
    write(
        "templates/config.yaml",
        &(head("ConfigMap", "v1")
            + "data:\n  {{- range $key, $value := .Values.config }}\n  {{ $key }}: {{ $value | quote }}\n  {{- end }}\n"),
    )
}

fn overlay(repo: &Repository, folder: &str, nth: usize) -> Result<()> {
    let write = |path: &str, text: &str| repo.write(&format!("{folder}/{path}"), text);
    write(
        "base/kustomization.yaml",
        "resources: [deployment.yaml, service.yaml, config.yaml]\n",
    )?;
    write("base/deployment.yaml", &deployment("web", nth))?;
    write("base/service.yaml", &service("web"))?;
    write("base/config.yaml", &config_map("web", &nth.to_string()))?;
    write(
        "kustomization.yaml",
        &format!(
            "resources: [base]\nnamePrefix: p{nth}-\nlabels: [{{pairs: {{team: t{nth}}}, includeSelectors: true}}]\nimages: [{{name: \
                  example.com/web, newTag: \"2.{nth}\"}}]\nreplicas: [{{name: web, count: 3}}]\npatches: [{{path: patch.yaml}}]\n\
                  configMapGenerator: [{{name: made, literals: [number={nth}]}}]\n"
        ),
    )?;
    write(
        "patch.yaml",
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  template:\n    spec:\n      containers:\n      - {name: main, \
         env: [{name: EXTRA, value: \"1\"}]}\n",
    )
}

fn program(repo: &Repository, folder: &str, nth: usize) -> Result<()> {
    repo.write(
        &format!("{folder}/lib.libsonnet"),
        "{\n  labels(name):: { app: name, team: 't' + std.length(name) },\n  configMap(name, data):: { apiVersion: 'v1', kind: 'ConfigMap', \
         metadata: { name: name, labels: $.labels(name) }, data: data },\n  service(name, port):: { apiVersion: 'v1', kind: 'Service', \
         metadata: { name: name, labels: $.labels(name) }, spec: { ports: [{ port: port }], selector: $.labels(name) } },\n}\n",
    )?;
    repo.write(
        &format!("{folder}/main.jsonnet"),
        &format!(
            "local lib = import 'lib.libsonnet';\nlocal sum(n) = if n == 0 then 0 else n + sum(n - 1);\n[lib.configMap('c%d' % i, {{ ['k%d' \
             % j]: std.toString(sum(j) + i + {nth}) for j in std.range(0, 20) }}) for i in std.range(0, 20)]\n+ [lib.service('s%d' % i, 8000 \
             + i) for i in std.range(0, 10)]\n+ [lib.configMap('m', {{ json: std.manifestJsonEx({{ a: std.sort(std.map(function(x) (x * \
             7919) % 101, std.range(0, 200))) }}, '  ') }})]\n"
        ),
    )
}

fn plain(repo: &Repository, folder: &str, nth: usize) -> Result<()> {
    let mut objects: Vec<String> = (0..7)
        .map(|at| config_map(&format!("c{at}"), &format!("{nth} ").repeat(120)))
        .collect();
    objects.push(deployment("web", nth));
    objects.push(service("web"));
    for (at, object) in objects.iter().enumerate() {
        repo.write(&format!("{folder}/{at}.yaml"), object)?;
    }
    Ok(())
}

/// Four thousand resources under one overlay.
fn heavy_overlay(repo: &Repository, folder: &str) -> Result<()> {
    let names: Vec<String> = (0..40).map(|nth| format!("base/{nth}.yaml")).collect();
    for (nth, name) in names.iter().enumerate() {
        let objects: Vec<String> = (0..100)
            .map(|at| config_map(&format!("c-{nth}-{at}"), &format!("{at} ").repeat(40)))
            .collect();
        repo.write(&format!("{folder}/{name}"), &objects.join("---\n"))?;
    }
    repo.write(
        &format!("{folder}/kustomization.yaml"),
        &format!(
            "resources: [{}]\nnamePrefix: heavy-\nlabels: [{{pairs: {{team: heavy}}}}]\n",
            names.join(", ")
        ),
    )
}

/// A chart of a hundred charts.
fn umbrella(repo: &Repository, folder: &str) -> Result<()> {
    let mut dependencies = String::new();
    for nth in 0..100 {
        small_chart(repo, &format!("{folder}/charts/web{nth}"), nth)?;
        dependencies += &format!("- {{name: web{nth}, version: 1.0.{nth}}}\n");
    }
    repo.write(
        &format!("{folder}/Chart.yaml"),
        &format!("apiVersion: v2\nname: umbrella\nversion: 1.0.0\ndependencies:\n{dependencies}"),
    )
}

/// A chart whose values are templates, two thousand times.
pub(crate) fn templates(repo: &Repository, folder: &str) -> Result<()> {
    repo.write(
        &format!("{folder}/Chart.yaml"),
        "apiVersion: v2\nname: templates\nversion: 1.0.0\n",
    )?;
    repo.write(
        &format!("{folder}/values.yaml"),
        "text: '{{ .Release.Name }}-{{ .Chart.Name | upper }}-{{ printf \"%05d\" 7 }}'\n",
    )?;
    repo.write(
        &format!("{folder}/templates/all.yaml"),
        "{{- range $at := until 200 }}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: c-{{ $at }}}\ndata:\n{{- range $key := until \
         10 }}\n  k{{ $key }}: {{ tpl $.Values.text $ | quote }}\n{{- end }}\n{{- end }}\n",
    )
}
