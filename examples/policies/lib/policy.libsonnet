local meta(name, team) = {
  name: name,
  labels: { team: team },
};

{
  quota(team, cpu, memory):: {
    apiVersion: 'v1',
    kind: 'ResourceQuota',
    metadata: meta('quota-' + team, team),
    spec: {
      hard: { 'requests.cpu': cpu, 'requests.memory': memory },
      scopeSelector: {
        matchExpressions: [{ scopeName: 'PriorityClass', operator: 'In', values: [team] }],
      },
    },
  },

  // Pods of a team accept connections from their own team and from the named others.
  onlyFrom(team, others):: {
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata: meta('only-known-' + team, team),
    spec: {
      podSelector: { matchLabels: { team: team } },
      policyTypes: ['Ingress'],
      ingress: [{
        from: [
          { podSelector: { matchLabels: { team: from } } }
          for from in [team] + others
        ],
      }],
    },
  },
}
