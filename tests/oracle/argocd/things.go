package main

import (
	"os"

	"github.com/argoproj/argo-cd/v3/pkg/apiclient/account"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/application"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/cluster"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/project"
	"github.com/argoproj/argo-cd/v3/pkg/apiclient/repository"
	"github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
	"google.golang.org/grpc/codes"
)

// credentials adds a repository and a cluster, and looks at both.
func (p *person) credentials() {
	repos := open(p, "add a repository", p.NewRepoClient)
	repo := &v1alpha1.Repository{Repo: os.Getenv("REPOSITORY"), Type: "git", Name: "examples"}
	_, err := repos.CreateRepository(ctx(), &repository.RepoCreateRequest{Repo: repo})
	p.must("add a repository", err)
	_, err = repos.CreateRepository(ctx(), &repository.RepoCreateRequest{Repo: repo})
	p.must("add the same repository again", err)
	other := *repo
	other.Username, other.Password = "me", "secret"
	_, err = repos.CreateRepository(ctx(), &repository.RepoCreateRequest{Repo: &other})
	p.refused("add another one of that URL", err, codes.InvalidArgument)
	listed, err := repos.ListRepositories(ctx(), &repository.RepoQuery{})
	p.must("list repositories", err)
	p.check("the repository is listed", len(listed.Items) == 1 && listed.Items[0].Repo == repo.Repo &&
		listed.Items[0].ConnectionState.Status == v1alpha1.ConnectionStatusSuccessful, listed.Items)
	refs, err := repos.ListRefs(ctx(), &repository.RepoQuery{Repo: repo.Repo})
	p.must("list branches and tags", err)
	p.check("the branch is listed", len(refs.Branches) == 1, refs)
	apps, err := repos.ListApps(ctx(), &repository.RepoAppsQuery{Repo: repo.Repo, Revision: "HEAD", AppProject: "default"})
	p.must("look for applications in it", err)
	p.check("no Helm chart and no kustomization is in it", len(apps.Items) == 0, apps)

	clusters := open(p, "add a cluster", p.NewClusterClient)
	added := &v1alpha1.Cluster{
		Server: os.Getenv("CLUSTER"), Name: p.name("far"),
		Config: v1alpha1.ClusterConfig{
			BearerToken: os.Getenv("CLUSTER_TOKEN"), TLSClientConfig: v1alpha1.TLSClientConfig{Insecure: true},
		},
		Labels: map[string]string{"tier": "test"},
	}
	_, err = clusters.Create(ctx(), &cluster.ClusterCreateRequest{Cluster: added})
	p.must("add a cluster", err)
	found, err := clusters.Get(ctx(), &cluster.ClusterQuery{Name: added.Name})
	p.must("get the cluster by its name", err)
	p.check("its credentials stay behind", found.Server == added.Server && found.Config.BearerToken == "", found)
	found.Labels = map[string]string{"tier": "other"}
	changed, err := clusters.Update(ctx(), &cluster.ClusterUpdateRequest{Cluster: found, UpdatedFields: []string{"labels"}})
	p.must("change its labels", err)
	p.check("its labels are changed", changed.Labels["tier"] == "other", changed)
}

// project makes one with a role, and a token of it that may do what the role may and no more.
func (p *person) project() {
	projects := open(p, "create a project", p.NewProjectClient)
	name := p.name("shop")
	made := &v1alpha1.AppProject{Spec: v1alpha1.AppProjectSpec{
		SourceRepos:  []string{"*"},
		Destinations: []v1alpha1.ApplicationDestination{{Server: "*", Namespace: "*"}},
		Roles: []v1alpha1.ProjectRole{{Name: "ci", Policies: []string{
			"p, proj:" + name + ":ci, applications, get, " + name + "/*, allow",
			"p, proj:" + name + ":ci, applications, sync, " + name + "/*, allow",
		}}},
		ClusterResourceWhitelist: []v1alpha1.ClusterResourceRestrictionItem{{Group: "*", Kind: "*"}},
	}}
	made.Name = name
	_, err := projects.Create(ctx(), &project.ProjectCreateRequest{Project: made})
	p.must("create a project", err)
	token, err := projects.CreateToken(ctx(), &project.ProjectTokenCreateRequest{Project: name, Role: "ci", Id: "one"})
	p.must("make a token of its role", err)
	robot := *p
	robot.Client = p.with(token.Token)
	apps := open(&robot, "list applications as the role", robot.NewApplicationClient)
	_, err = apps.List(ctx(), &application.ApplicationQuery{})
	p.must("list applications as the role", err)
	app := p.described()
	_, err = apps.Create(ctx(), &application.ApplicationCreateRequest{Application: app})
	p.refused("create an application as the role", err, codes.PermissionDenied)
	_, err = projects.DeleteToken(ctx(), &project.ProjectTokenDeleteRequest{Project: name, Role: "ci", Id: "one"})
	p.must("delete the token", err)
	_, err = apps.List(ctx(), &application.ApplicationQuery{})
	p.refused("use the deleted token", err, codes.Unauthenticated)
	detailed, err := projects.GetDetailedProject(ctx(), &project.ProjectQuery{Name: name})
	p.must("look at the project in detail", err)
	p.check("the details are of it", detailed.Project.Name == name, detailed)
	_, err = projects.Get(ctx(), &project.ProjectQuery{Name: "nowhere"})
	p.check("look at a project that does not exist", err != nil, err)
}

// accounts makes and takes back a token of an account, and asks what one may do.
func (p *person) accounts() {
	accounts := open(p, "make a token", p.NewAccountClient)
	listed, err := accounts.ListAccounts(ctx(), &account.ListAccountRequest{})
	p.must("list accounts", err)
	p.check("both accounts are listed", len(listed.Items) == 2, listed)
	token, err := accounts.CreateToken(ctx(), &account.CreateTokenRequest{Name: "robot", Id: p.name("id"), ExpiresIn: 3600})
	p.must("make a token", err)
	robot := *p
	robot.Client = p.with(token.Token)
	mine := open(&robot, "ask what I may", robot.NewAccountClient)
	may, err := mine.CanI(ctx(), &account.CanIRequest{Resource: "applications", Action: "delete", Subresource: "default/x"})
	p.must("ask what I may", err)
	p.check("a robot may not delete", may.Value == "no", may)
	_, err = accounts.DeleteToken(ctx(), &account.DeleteTokenRequest{Name: "robot", Id: p.name("id")})
	p.must("delete the token", err)
	_, err = mine.CanI(ctx(), &account.CanIRequest{Resource: "applications", Action: "get", Subresource: "default/x"})
	p.refused("use the deleted token", err, codes.Unauthenticated)

	projects := open(p, "delete the project", p.NewProjectClient)
	_, err = projects.Delete(ctx(), &project.ProjectQuery{Name: p.name("shop")})
	p.must("delete the project", err)
	clusters := open(p, "delete the cluster", p.NewClusterClient)
	_, err = clusters.Delete(ctx(), &cluster.ClusterQuery{Name: p.name("far")})
	p.must("delete the cluster", err)
	repos := open(p, "delete the repository", p.NewRepoClient)
	_, err = repos.DeleteRepository(ctx(), &repository.RepoQuery{Repo: os.Getenv("REPOSITORY")})
	p.must("delete the repository", err)
}
