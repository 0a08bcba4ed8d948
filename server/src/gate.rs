//! The gate: the one place where it is decided who may do what.
//!
//! Tables hand objects out [`Shut`]: their content cannot be reached. [`Gate::open`] asks the policy about the object as
//! it is stored, never as a caller describes it, and turns it into [`Granted`] for one verb. What writes wants a grant of
//! a verb that [`Writes`]; so a handler that did not ask does not compile.
//!
//! What is not there and what one may not see are the same answer.

mod view;

use std::collections::HashMap;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

use argosy_api::v1alpha1::{AppProject, Application};
use argosy_rbac::{Access, Policy, Request, Verdict, builtin};
use parking_lot::Mutex;
use tonic::Status;

use crate::auth::Caller;
use crate::state::{ControlPlane, Rbac};
use crate::status;

use view::Partition;

/// What a caller wants to do.
pub(crate) trait Verb: Send + std::marker::Sync + 'static {
    /// The action in policies.
    const ACTION: &'static str;
}

/// A verb that changes something.
pub(crate) trait Writes: Verb {}

macro_rules! verbs {
    ($($(#[$doc:meta])* $name:ident = $action:literal $(, $writes:ident)?;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name;
        impl Verb for $name {
            const ACTION: &'static str = $action;
        }
        $(impl $writes for $name {})?
    )*};
}

verbs! {
    /// Look.
    Get = "get";
    /// Make.
    Create = "create", Writes;
    /// Change.
    Update = "update", Writes;
    /// Take away.
    Delete = "delete", Writes;
    /// Start, roll back or end an operation.
    Sync = "sync", Writes;
    /// Have it looked at: what [`Get`] allows, as a write.
    Refresh = "get", Writes;
}

/// An object nobody has looked into yet, and its name in policies.
#[derive(Clone)]
pub(crate) struct Shut<T> {
    name: Name,
    object: T,
}

/// The name of an object in policies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    resource: &'static str,
    object: String,
    /// Whose policies count as well; empty for none.
    project: String,
}

impl<T> Shut<T> {
    /// Shuts an object. `project` is the project whose own policies count for it.
    pub(crate) fn new(resource: &'static str, object: String, project: String, inner: T) -> Self {
        Shut {
            name: Name {
                resource,
                object,
                project,
            },
            object: inner,
        }
    }

    /// The same place with something in it.
    pub(crate) fn with<U>(self, object: U) -> Shut<U> {
        Shut {
            name: self.name,
            object,
        }
    }

    /// The same under a further noun, such as `logs` of an Application.
    pub(crate) fn under(mut self, resource: &'static str) -> Self {
        self.name.resource = resource;
        self
    }
}

/// An object that the caller may do `V` with. Only the gate makes it.
pub(crate) struct Granted<T, V> {
    name: Name,
    object: T,
    verb: PhantomData<V>,
}

impl<T, V> Deref for Granted<T, V> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.object
    }
}

impl<T, V> Granted<T, V> {
    /// The object.
    pub(crate) fn into_inner(self) -> T {
        self.object
    }

    /// Is this still the object's name in policies? One that has moved is another matter.
    pub(crate) fn is_at(&self, place: &Shut<()>) -> bool {
        self.name == place.name
    }

    /// The object as one who has not asked yet has it: for a further verb.
    pub(crate) fn shut(&self) -> Shut<T>
    where
        T: Clone,
    {
        Shut {
            name: self.name.clone(),
            object: self.object.clone(),
        }
    }
}

impl Granted<String, Update> {
    /// One's own account, which everybody may change.
    pub(crate) fn own_account(user: &crate::auth::User) -> Self {
        Granted {
            name: Name {
                resource: "accounts",
                object: user.name.clone(),
                project: String::new(),
            },
            object: user.name.clone(),
            verb: PhantomData,
        }
    }
}

/// The gate.
pub(crate) struct Gate {
    plane: Arc<ControlPlane>,
    /// Nobody is asked who they are.
    disabled: bool,
    projects: Mutex<HashMap<String, ProjectPolicy>>,
    partitions: Mutex<HashMap<view::Asking, Arc<Partition>>>,
}

/// The policies of a project's roles, compiled, with what they were compiled from.
struct ProjectPolicy {
    version: String,
    rbac: Arc<Rbac>,
    policy: Arc<Policy>,
}

/// The text that stands for everything one may not know.
pub(crate) const DENIED: &str = "permission denied";

impl Gate {
    /// A gate of this control plane.
    pub(crate) fn new(plane: Arc<ControlPlane>, disabled: bool) -> Self {
        Gate {
            plane,
            disabled,
            projects: Mutex::default(),
            partitions: Mutex::default(),
        }
    }

    /// Opens an object for a verb.
    pub(crate) fn open<V: Verb, T>(&self, caller: &Caller, shut: Shut<T>) -> Result<Granted<T, V>, Status> {
        self.allow(caller, &shut.name, V::ACTION)?;
        Ok(Granted {
            name: shut.name,
            object: shut.object,
            verb: PhantomData,
        })
    }

    /// Opens what was found; what was not found is denied in the same words.
    pub(crate) fn open_found<V: Verb, T>(
        &self,
        caller: &Caller,
        found: Option<Shut<T>>,
    ) -> Result<Granted<T, V>, Status> {
        let denied = || Status::permission_denied(DENIED);
        let granted = found.ok_or_else(denied).and_then(|shut| self.open(caller, shut));
        granted.map_err(|status| match status.code() {
            tonic::Code::PermissionDenied => denied(),
            _ => status,
        })
    }

    /// May this be done to what was granted already? For actions with a name of their own, such as
    /// `action/apps/Deployment/restart` or `override`. The grant that comes back may write.
    pub(crate) fn allow_action<T: Clone, V>(
        &self,
        caller: &Caller,
        granted: &Granted<T, V>,
        action: &str,
    ) -> Result<Granted<T, Sync>, Status> {
        self.allow(caller, &granted.name, action)?;
        Ok(Granted {
            name: granted.name.clone(),
            object: granted.object.clone(),
            verb: PhantomData,
        })
    }

    /// Opens what the caller may see of a list; the rest costs one comparison each.
    pub(crate) fn filter<V: Verb, T>(
        &self,
        caller: &Caller,
        list: impl IntoIterator<Item = Shut<T>>,
    ) -> Vec<Granted<T, V>> {
        let mut view = self.view::<V>(caller);
        list.into_iter().filter_map(|shut| view.open(shut)).collect()
    }

    /// Opens an Application by what a request says of it.
    ///
    /// What is missing and what is forbidden is [`DENIED`] alike; that an Application does not exist is told only to
    /// those who name the project and might see it there.
    pub(crate) fn open_app<V: Verb>(
        &self,
        caller: &Caller,
        project: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Granted<Arc<Application>, V>, Status> {
        let get: Granted<_, Get> = self.look_at_app(caller, project, namespace, name)?;
        if V::ACTION == Get::ACTION {
            return Ok(Granted {
                name: get.name,
                object: get.object,
                verb: PhantomData,
            });
        }
        self.open(caller, get.shut())
    }

    fn look_at_app(
        &self,
        caller: &Caller,
        project: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Granted<Arc<Application>, Get>, Status> {
        if !project.is_empty() {
            let claimed = Name {
                resource: "applications",
                object: self.plane.in_project(project, namespace, name),
                project: project.to_owned(),
            };
            self.allow(caller, &claimed, Get::ACTION)
                .map_err(|_| Status::permission_denied(DENIED))?;
        }
        let found = self
            .plane
            .app(namespace, name)
            .filter(|_| self.plane.is_enabled(namespace) || namespace.is_empty());
        match found {
            Some(found) if project.is_empty() || found.name.project == project => {
                self.open_found(caller, Some(found))
            }
            _ if project.is_empty() => Err(Status::permission_denied(DENIED)),
            _ => Err(status::not_found("applications.argoproj.io", name)),
        }
    }

    /// Whoever may look at an Application, as all may who may do anything with it, may ask the controller to look at it: that
    /// is written as an annotation.
    pub(crate) fn refresh<V>(
        &self,
        app: &Granted<Arc<Application>, V>,
    ) -> Granted<Arc<Application>, Refresh> {
        Granted {
            name: app.name.clone(),
            object: app.object.clone(),
            verb: PhantomData,
        }
    }

    /// May the caller do this, and by which rule? For `account can-i`, which asks without an object at hand.
    pub(crate) fn ask(&self, caller: &Caller, resource: &str, action: &str, object: &str) -> Verdict {
        let project = self.project_of(resource, object);
        self.explain(caller, resource, action, object, &project)
    }

    fn project_of(&self, resource: &str, object: &str) -> String {
        match resource {
            "projects" => object.to_owned(),
            "applications" | "applicationsets" | "logs" | "exec" | "repositories" | "clusters" => object
                .split_once('/')
                .map(|(project, _)| project.to_owned())
                .unwrap_or_default(),
            _ => String::new(),
        }
    }

    fn allow(&self, caller: &Caller, name: &Name, action: &str) -> Result<(), Status> {
        if self
            .explain(caller, name.resource, action, &name.object, &name.project)
            .allowed()
        {
            return Ok(());
        }
        let who = caller.described();
        Err(Status::permission_denied(format!(
            "permission denied: {}, {action}, {}{who}",
            name.resource, name.object
        )))
    }

    fn explain(&self, caller: &Caller, resource: &str, action: &str, object: &str, project: &str) -> Verdict {
        let rbac = self.plane.settings().rbac.clone();
        let request = Request {
            resource,
            action,
            object,
        };
        self.access(caller, &rbac, project).explain(request)
    }

    /// The rules that count for a caller and an object of a project.
    fn access(&self, caller: &Caller, rbac: &Arc<Rbac>, project: &str) -> Access {
        if self.disabled {
            return Access::of(&[builtin()], ["role:admin"]);
        }
        let global = [builtin(), &rbac.policy];
        let default = Access::of(&global, [rbac.default_role.as_str()]);
        let Some(user) = caller.user() else {
            return default;
        };
        let found = if project.is_empty() {
            None
        } else {
            self.plane.project_for_gate(project)
        };
        let policy = found.as_ref().map(|project| self.compiled(project, rbac));
        let mut policies = global.to_vec();
        // A token of a project is worth nothing in another one. In its own the installation's policies count as well as the
        // project's: they may deny what that allows.
        let is_foreign = found.is_some() && user.project_role().is_some_and(|own| own != project);
        if is_foreign {
            return default;
        }
        policies.extend(policy.iter().map(|policy| &**policy));
        default.and(Access::of(&policies, user.names()))
    }

    fn compiled(&self, project: &AppProject, rbac: &Arc<Rbac>) -> Arc<Policy> {
        let name = &project.metadata.name;
        let version = &project.metadata.resource_version;
        let mut projects = self.projects.lock();
        if let Some(known) = projects.get(name)
            && known.version == *version
            && Arc::ptr_eq(&known.rbac, rbac)
        {
            return known.policy.clone();
        }
        let policy = Policy::parse(&policy_text(project), rbac.mode).unwrap_or_else(|error| {
            tracing::warn!(project = name, "{error}: the project's policies do not count");
            Policy::default()
        });
        let policy = Arc::new(policy);
        let known = ProjectPolicy {
            version: version.clone(),
            rbac: rbac.clone(),
            policy: policy.clone(),
        };
        projects.insert(name.clone(), known);
        policy
    }
}

/// The policies of all roles of a project. Each role may look at its project, and is had by its groups.
fn policy_text(project: &AppProject) -> String {
    let name = &project.metadata.name;
    let mut text = String::new();
    for role in &project.spec.roles {
        let subject = format!("proj:{name}:{}", role.name);
        text += &format!("p, {subject}, projects, get, {name}, allow\n");
        for policy in &role.policies {
            text += &format!("{policy}\n");
        }
        for group in &role.groups {
            text += &format!("g, \"{}\", {subject}\n", group.replace('"', "\"\""));
        }
    }
    text
}
