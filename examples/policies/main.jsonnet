// A quota and a network policy for each team. `teams` is a comma list, so that an
// Application can pass it as plain text; `cpu` is the share of each.
local policy = import 'lib/policy.libsonnet';

function(teams='web,orders', cpu='4')
  local names = [team for team in std.split(teams, ',') if team != ''];
  std.flattenArrays([
    [
      policy.quota(team, cpu, memory='8Gi'),
      policy.onlyFrom(team, others=[other for other in names if other != team]),
    ]
    for team in names
  ])
