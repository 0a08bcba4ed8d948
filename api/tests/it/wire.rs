//! The hand-written messages against `api/proto`: every field has the number, the type and the JSON name it should have.
//!
//! Each message of the `.proto` files is filled to the brim, encoded, read by the Rust struct and written again. A field
//! with another number or type would be lost on the way, since prost drops what it does not know; a field too many would
//! be found by its JSON. The `.proto` files themselves were compared with Argo CD's.

use std::path::Path;

use base64::Engine as _;
use prost::Message as _;
use prost_reflect::{
    Cardinality, DescriptorPool, DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor,
    ReflectMessage as _, Value,
};
use serde_json::{Map, Value as Json, json};

use argosy_api::{events, meta, v1alpha1};

const ARGO: &str = "github.com.argoproj.argo_cd.v3.pkg.apis.application.v1alpha1";
const META: &str = "k8s.io.apimachinery.pkg.apis.meta.v1";
const CORE: &str = "k8s.io.api.core.v1";
const EVENTS: &str = "events";

/// Reads bytes as a Rust struct; its bytes and its JSON.
type Read = fn(&[u8]) -> (Vec<u8>, Json);

fn read<T: prost::Message + Default + serde::Serialize>(bytes: &[u8]) -> (Vec<u8>, Json) {
    let message = T::decode(bytes).unwrap();
    (message.encode_to_vec(), serde_json::to_value(&message).unwrap())
}

macro_rules! messages {
    ($package:expr, $module:ident: $($proto:ident $rust:ident;)*) => {
        vec![$((format!("{}.{}", $package, stringify!($proto)), read::<$module::$rust> as Read),)*]
    };
}

fn all() -> Vec<(String, Read)> {
    let mut all = messages! { ARGO, v1alpha1:
        Application Application; ApplicationList ApplicationList;
        ApplicationWatchEvent ApplicationWatchEvent; ApplicationSpec ApplicationSpec;
        ApplicationDestination ApplicationDestination; ResourceIgnoreDifferences ResourceIgnoreDifferences;
        Info Info; SyncPolicy SyncPolicy; SyncPolicyAutomated SyncPolicyAutomated;
        RetryStrategy RetryStrategy; Backoff Backoff; ManagedNamespaceMetadata ManagedNamespaceMetadata;
        ApplicationSource ApplicationSource; ApplicationSourceHelm ApplicationSourceHelm;
        HelmParameter HelmParameter; HelmFileParameter HelmFileParameter;
        ApplicationSourceKustomize ApplicationSourceKustomize; KustomizeReplica KustomizeReplica;
        KustomizePatch KustomizePatch; KustomizeSelector KustomizeSelector; KustomizeResId KustomizeResId;
        KustomizeGvk KustomizeGvk; ApplicationSourceDirectory ApplicationSourceDirectory;
        ApplicationSourceJsonnet ApplicationSourceJsonnet; JsonnetVar JsonnetVar;
        ApplicationSourcePlugin ApplicationSourcePlugin;
        ApplicationSourcePluginParameter ApplicationSourcePluginParameter; OptionalMap OptionalMap;
        OptionalArray OptionalArray; EnvEntry EnvEntry; SourceHydrator SourceHydrator; DrySource DrySource;
        SyncSource SyncSource; HydrateTo HydrateTo; ApplicationStatus ApplicationStatus;
        SyncStatus SyncStatus; ComparedTo ComparedTo; AppHealthStatus AppHealthStatus;
        HealthStatus HealthStatus; ResourceStatus ResourceStatus; RevisionHistory RevisionHistory;
        OperationInitiator OperationInitiator; ApplicationCondition ApplicationCondition;
        ApplicationSummary ApplicationSummary; SourceHydratorStatus SourceHydratorStatus;
        HydrateOperation HydrateOperation; SuccessfulHydrateOperation SuccessfulHydrateOperation;
        Operation Operation; SyncOperation SyncOperation; SyncOperationResource SyncOperationResource;
        SyncStrategy SyncStrategy; SyncStrategyApply SyncStrategyApply; SyncStrategyHook SyncStrategyHook;
        OperationState OperationState; SyncOperationResult SyncOperationResult;
        ResourceResult ResourceResult; AppProject AppProject; AppProjectList AppProjectList;
        AppProjectSpec AppProjectSpec; AppProjectStatus AppProjectStatus; ProjectRole ProjectRole;
        JWTToken JwtToken; JWTTokens JwtTokens;
        ClusterResourceRestrictionItem ClusterResourceRestrictionItem;
        ApplicationDestinationServiceAccount ApplicationDestinationServiceAccount;
        OrphanedResourcesMonitorSettings OrphanedResourcesMonitorSettings;
        OrphanedResourceKey OrphanedResourceKey; SyncWindow SyncWindow; SignatureKey SignatureKey;
        SourceIntegrity SourceIntegrity; SourceIntegrityGit SourceIntegrityGit;
        SourceIntegrityGitPolicy SourceIntegrityGitPolicy;
        SourceIntegrityGitPolicyRepo SourceIntegrityGitPolicyRepo;
        SourceIntegrityGitPolicyGPG SourceIntegrityGitPolicyGpg;
        SourceIntegrityCheckResult SourceIntegrityCheckResult;
        SourceIntegrityCheckResultItem SourceIntegrityCheckResultItem; ApplicationSet ApplicationSet;
        ApplicationSetList ApplicationSetList; ApplicationSetWatchEvent ApplicationSetWatchEvent;
        ApplicationSetSpec ApplicationSetSpec; ApplicationSetTemplate ApplicationSetTemplate;
        ApplicationSetTemplateMeta ApplicationSetTemplateMeta;
        ApplicationSetSyncPolicy ApplicationSetSyncPolicy; ApplicationSetStrategy ApplicationSetStrategy;
        ApplicationSetRolloutStrategy ApplicationSetRolloutStrategy;
        ApplicationSetRolloutStep ApplicationSetRolloutStep;
        ApplicationMatchExpression ApplicationMatchExpression;
        ApplicationPreservedFields ApplicationPreservedFields;
        ApplicationSetResourceIgnoreDifferences ApplicationSetResourceIgnoreDifferences;
        ApplicationSetStatus ApplicationSetStatus; ApplicationSetCondition ApplicationSetCondition;
        ApplicationSetApplicationStatus ApplicationSetApplicationStatus;
        ApplicationSetTree ApplicationSetTree; ApplicationSetGenerator ApplicationSetGenerator;
        ApplicationSetNestedGenerator ApplicationSetNestedGenerator;
        ApplicationSetTerminalGenerator ApplicationSetTerminalGenerator; ListGenerator ListGenerator;
        ClusterGenerator ClusterGenerator; GitGenerator GitGenerator;
        GitDirectoryGeneratorItem GitDirectoryGeneratorItem; GitFileGeneratorItem GitFileGeneratorItem;
        SCMProviderGenerator ScmProviderGenerator; SCMProviderGeneratorFilter ScmProviderGeneratorFilter;
        SCMProviderGeneratorGithub ScmProviderGeneratorGithub;
        SCMProviderGeneratorGitlab ScmProviderGeneratorGitlab;
        SCMProviderGeneratorGitea ScmProviderGeneratorGitea;
        SCMProviderGeneratorBitbucket ScmProviderGeneratorBitbucket;
        SCMProviderGeneratorBitbucketServer ScmProviderGeneratorBitbucketServer;
        SCMProviderGeneratorAzureDevOps ScmProviderGeneratorAzureDevOps;
        SCMProviderGeneratorAWSCodeCommit ScmProviderGeneratorAwsCodeCommit; TagFilter TagFilter;
        DuckTypeGenerator DuckTypeGenerator; PullRequestGenerator PullRequestGenerator;
        PullRequestGeneratorFilter PullRequestGeneratorFilter;
        PullRequestGeneratorGithub PullRequestGeneratorGithub;
        PullRequestGeneratorGitLab PullRequestGeneratorGitLab;
        PullRequestGeneratorGitea PullRequestGeneratorGitea;
        PullRequestGeneratorBitbucketServer PullRequestGeneratorBitbucketServer;
        PullRequestGeneratorBitbucket PullRequestGeneratorBitbucket;
        PullRequestGeneratorAzureDevOps PullRequestGeneratorAzureDevOps; MatrixGenerator MatrixGenerator;
        NestedMatrixGenerator NestedMatrixGenerator; MergeGenerator MergeGenerator;
        NestedMergeGenerator NestedMergeGenerator; PluginGenerator PluginGenerator;
        PluginConfigMapRef PluginConfigMapRef; PluginInput PluginInput; SecretRef SecretRef;
        ConfigMapKeyRef ConfigMapKeyRef; BasicAuthBitbucketServer BasicAuthBitbucketServer;
        BearerTokenBitbucket BearerTokenBitbucket; BearerTokenBitbucketCloud BearerTokenBitbucketCloud;
        ApplicationTree ApplicationTree; ResourceNode ResourceNode; ResourceRef ResourceRef;
        InfoItem InfoItem; ResourceNetworkingInfo ResourceNetworkingInfo; HostInfo HostInfo;
        HostResourceInfo HostResourceInfo; ResourceDiff ResourceDiff; ResourceActions ResourceActions;
        ResourceActionDefinition ResourceActionDefinition; ResourceAction ResourceAction;
        ResourceActionParam ResourceActionParam; RevisionMetadata RevisionMetadata;
        RevisionReference RevisionReference; CommitMetadata CommitMetadata; ChartDetails ChartDetails;
        OCIMetadata OciMetadata; ResourceOverride ResourceOverride; OverrideIgnoreDiff OverrideIgnoreDiff;
        KnownTypeField KnownTypeField; Repository Repository; RepositoryList RepositoryList;
        RepoCreds RepoCreds; RepoCredsList RepoCredsList; RefTarget RefTarget;
        RepositoryCertificate RepositoryCertificate; RepositoryCertificateList RepositoryCertificateList;
        GnuPGPublicKey GnuPgPublicKey; GnuPGPublicKeyList GnuPgPublicKeyList; HelmOptions HelmOptions;
        KustomizeOptions KustomizeOptions; KustomizeVersion KustomizeVersion;
        ConfigManagementPlugin ConfigManagementPlugin; Command Command;
        ComponentParameter ComponentParameter; Cluster Cluster; ClusterList ClusterList;
        ClusterConfig ClusterConfig; TLSClientConfig TlsClientConfig; AWSAuthConfig AwsAuthConfig;
        ExecProviderConfig ExecProviderConfig; ConnectionState ConnectionState; ClusterInfo ClusterInfo;
        ClusterCacheInfo ClusterCacheInfo;
    };
    all.extend(messages! { META, meta:
        ObjectMeta ObjectMeta; OwnerReference OwnerReference; ManagedFieldsEntry ManagedFieldsEntry; FieldsV1 FieldsV1;
        ListMeta ListMeta; Time Time; MicroTime MicroTime; GroupKind GroupKind; LabelSelector LabelSelector;
        LabelSelectorRequirement LabelSelectorRequirement;
    });
    all.extend(messages! { CORE, meta:
        LoadBalancerIngress LoadBalancerIngress; PortStatus PortStatus; NodeSystemInfo NodeSystemInfo;
        NodeSwapStatus NodeSwapStatus;
    });
    all.extend(messages! { EVENTS, events:
        EventList EventList; Event Event; EventSeries EventSeries; ObjectReference ObjectReference; EventSource EventSource;
    });
    all
}

fn pool() -> DescriptorPool {
    let protos = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto");
    let files = protox::compile(["repository/repository.proto", "events/events.proto"], [protos]).unwrap();
    DescriptorPool::from_file_descriptor_set(files).unwrap()
}

#[test]
fn every_message_is_read_and_written_whole() {
    let pool = pool();
    for (name, read) in all() {
        let descriptor = pool
            .get_message_by_name(&name)
            .unwrap_or_else(|| panic!("{name} is in no .proto file"));
        let full = filled(&descriptor);
        let (bytes, _) = read(&full.encode_to_vec());
        let back = DynamicMessage::decode(descriptor, bytes.as_slice()).unwrap();
        assert_eq!(back, full, "{name}");
    }
}

#[test]
fn json_has_the_names_of_the_wire_but_for_the_known_exceptions() {
    let pool = pool();
    for (name, read) in all() {
        let full = filled(&pool.get_message_by_name(&name).unwrap());
        let (_, json) = read(&full.encode_to_vec());
        assert_eq!(json, expected_json(&full), "{name}");
    }
}

#[test]
fn no_message_is_forgotten() {
    let known: Vec<String> = all().into_iter().map(|(name, _)| name).collect();
    for message in pool().all_messages() {
        let name = message.full_name();
        if [ARGO, META, CORE, EVENTS].contains(&message.package_name()) && !message.is_map_entry() {
            assert!(known.iter().any(|own| own == name), "{name}");
        }
    }
}

#[test]
fn an_empty_message_is_read_as_zero() {
    for (_, read) in all() {
        read(&[]);
    }
    let zero = v1alpha1::Application::decode(&[][..]).unwrap();
    assert_eq!(zero, v1alpha1::Application::default());
}

#[test]
fn the_zero_time_is_an_empty_message_and_null() {
    let time = meta::Time::decode(&[][..]).unwrap();
    assert!(time.is_zero());
    assert!(time.encode_to_vec().is_empty());
    assert_eq!(serde_json::to_value(time).unwrap(), Json::Null);
}

#[test]
fn every_call_of_the_repository_server_is_there() {
    let service = pool()
        .get_service_by_name("repository.RepoServerService")
        .unwrap();
    let calls: Vec<String> = service.methods().map(|method| method.name().to_owned()).collect();
    assert_eq!(
        calls,
        [
            "GenerateManifest",
            "GenerateManifestWithFiles",
            "TestRepository",
            "ResolveRevision",
            "ListRefs",
            "ListOCITags",
            "ListApps",
            "ListPlugins",
            "GetAppDetails",
            "GetRevisionMetadata",
            "GetOCIMetadata",
            "GetRevisionChartDetails",
            "GetHelmCharts",
            "GetGitFiles",
            "GetGitDirectories",
            "UpdateRevisionForPaths"
        ]
    );
    assert!(
        service
            .methods()
            .find(|method| method.name() == "GenerateManifestWithFiles")
            .unwrap()
            .is_client_streaming()
    );
    assert_eq!(
        argosy_api::repository::repo_server_service_server::SERVICE_NAME,
        "repository.RepoServerService"
    );
}

#[test]
fn a_manifest_request_has_the_numbers_of_its_proto() {
    use argosy_api::repository::ManifestRequest;
    let pool = pool();
    let descriptor = pool.get_message_by_name("repository.ManifestRequest").unwrap();
    let full = filled(&descriptor);
    let request = ManifestRequest::decode(full.encode_to_vec().as_slice()).unwrap();
    assert_eq!(request.app_name, "appName");
    assert_eq!(request.ref_sources.len(), 1);
    let back = DynamicMessage::decode(descriptor, request.encode_to_vec().as_slice()).unwrap();
    assert_eq!(back, full);
}

// ---------------------------------------------------------------------------------------------------------------------
// Filling a message

fn filled(descriptor: &MessageDescriptor) -> DynamicMessage {
    let mut message = DynamicMessage::new(descriptor.clone());
    match descriptor.name() {
        "Time" => message.set_field_by_name("seconds", Value::I64(1_700_000_000)),
        "MicroTime" => {
            message.set_field_by_name("seconds", Value::I64(1_700_000_000));
            message.set_field_by_name("nanos", Value::I32(1_234_000));
        }
        "IntOrString" => {
            message.set_field_by_name("type", Value::I64(1));
            message.set_field_by_name("strVal", Value::String("25%".to_owned()));
        }
        "RawExtension" | "JSON" | "FieldsV1" => {
            let field = descriptor.fields().next().unwrap();
            message.set_field(&field, Value::Bytes(r#"{"key":[1,"two",null]}"#.into()));
        }
        _ => {
            for field in descriptor.fields() {
                message.set_field(&field, field_value(&field));
            }
        }
    }
    message
}

fn field_value(field: &FieldDescriptor) -> Value {
    if field.is_map() {
        let Kind::Message(entry) = field.kind() else {
            unreachable!()
        };
        return Value::Map(
            [(
                MapKey::String("key".to_owned()),
                single(&entry.map_entry_value_field()),
            )]
            .into(),
        );
    }
    match field.cardinality() {
        Cardinality::Repeated => Value::List(vec![single(field)]),
        Cardinality::Optional | Cardinality::Required => single(field),
    }
}

fn single(field: &FieldDescriptor) -> Value {
    match field.kind() {
        Kind::String => Value::String(field.name().to_owned()),
        Kind::Bool => Value::Bool(true),
        Kind::Int64 => Value::I64(i64::from(field.number()) + 1_000),
        Kind::Int32 => Value::I32(7),
        Kind::Bytes => Value::Bytes((&b"bytes"[..]).into()),
        Kind::Message(inner) => Value::Message(filled(&inner)),
        kind => panic!("{}: no value of kind {kind:?}", field.full_name()),
    }
}

// ---------------------------------------------------------------------------------------------------------------------
// The JSON it should have

/// JSON names that differ from the names on the wire.
const RENAMED: &[(&str, &str, &str)] = &[
    (
        "ApplicationSetApplicationStatus",
        "targetrevisions",
        "targetRevisions",
    ),
    ("OverrideIgnoreDiff", "jSONPointers", "jsonPointers"),
    ("ResourceOverride", "healthLua", "health.lua"),
    ("ResourceOverride", "useOpenLibs", "health.lua.useOpenLibs"),
    ("ResourceActionDefinition", "actionLua", "action.lua"),
    ("ResourceActions", "actionDiscoveryLua", "discovery.lua"),
    ("SourceIntegrityCheckResult", "checks", "Checks"),
    ("SourceIntegrityCheckResultItem", "name", "Name"),
    ("SourceIntegrityCheckResultItem", "problems", "Problems"),
    ("RefTarget", "repo", "Repo"),
    ("RefTarget", "targetRevision", "TargetRevision"),
    ("RefTarget", "chart", "Chart"),
    ("HelmOptions", "valuesFileSchemes", "ValuesFileSchemes"),
    ("KustomizeOptions", "buildOptions", "BuildOptions"),
    ("KustomizeOptions", "binaryPath", "BinaryPath"),
    ("KustomizeOptions", "versions", "Versions"),
    ("KustomizeVersion", "name", "Name"),
    ("KustomizeVersion", "path", "Path"),
    ("KustomizeVersion", "buildOptions", "BuildOptions"),
];

/// Messages that JSON holds inline in the one around them.
const INLINE: &[(&str, &str)] = &[
    ("SyncStrategyHook", "syncStrategyApply"),
    ("ResourceNode", "resourceRef"),
    ("KustomizeSelector", "resId"),
    ("KustomizeResId", "gvk"),
];

fn expected_json(message: &DynamicMessage) -> Json {
    let descriptor = message.descriptor();
    let own = descriptor.name();
    match own {
        "Time" => return "2023-11-14T22:13:20Z".into(),
        "MicroTime" => return "2023-11-14T22:13:20.001234Z".into(),
        "IntOrString" => return "25%".into(),
        "RawExtension" | "JSON" | "FieldsV1" => return json!({"key": [1, "two", null]}),
        "OptionalMap" | "OptionalArray" => {
            return value_json(&field_value(&descriptor.fields().next().unwrap()));
        }
        _ => {}
    }
    let mut map = Map::new();
    for (field, value) in message.fields() {
        let name = field.name();
        let json = match (own, name) {
            ("ResourceOverride", "ignoreDifferences" | "ignoreResourceUpdates") => concat!(
                "jqPathExpressions:\n- \"jqPathExpressions\"\n",
                "jsonPointers:\n- \"jSONPointers\"\n",
                "managedFieldsManagers:\n- \"managedFieldsManagers\"\n",
            )
            .into(),
            _ => value_json(value),
        };
        if INLINE.contains(&(own, name)) {
            map.extend(json.as_object().unwrap().clone());
            continue;
        }
        let renamed = RENAMED
            .iter()
            .find(|(message, field, _)| (*message, *field) == (own, name));
        map.insert(renamed.map_or(name, |(_, _, json)| json).to_owned(), json);
    }
    map.into()
}

fn value_json(value: &Value) -> Json {
    match value {
        Value::Bool(value) => (*value).into(),
        Value::I32(value) => (*value).into(),
        Value::I64(value) => (*value).into(),
        Value::String(value) => value.as_str().into(),
        Value::Bytes(value) => base64::engine::general_purpose::STANDARD.encode(value).into(),
        Value::Message(value) => expected_json(value),
        Value::List(values) => values.iter().map(value_json).collect(),
        Value::Map(values) => values
            .iter()
            .map(|(key, value)| (key.as_str().unwrap().to_owned(), value_json(value)))
            .collect::<Map<_, _>>()
            .into(),
        value => panic!("no JSON of {value:?}"),
    }
}
