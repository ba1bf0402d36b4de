/**
 * The import rules of the picture in CONTRIBUTING.md: imports point downwards and never sideways into another folder's internals.
 *
 *   main → cli → workers → gateway → api, envd, proxy → sandboxes, templates, volumes, secrets, teams, events → node → db → core
 *
 * A folder's `contract.ts` holds its interfaces; their types may be imported from anywhere.
 */

/** Folders that may be imported by each folder, besides itself. A folder that is not named here may import nothing of ours. */
const allowed = {
  core: [],
  db: ['core'],
  agent: ['core'],
  setup: ['core'],
  node: ['agent', 'db', 'core'],
  teams: ['db', 'core'],
  events: ['db', 'core'],
  secrets: ['teams', 'db', 'core'],
  volumes: ['teams', 'db', 'core'],
  templates: ['node', 'events', 'secrets', 'teams', 'agent', 'db', 'core'],
  sandboxes: ['node', 'templates', 'volumes', 'events', 'secrets', 'teams', 'agent', 'db', 'core'],
  api: ['sandboxes', 'templates', 'volumes', 'secrets', 'teams', 'events', 'db', 'core'],
  envd: ['sandboxes', 'agent', 'core'],
  proxy: ['sandboxes', 'core'],
  gateway: ['api', 'envd', 'proxy', 'sandboxes', 'teams', 'core'],
  workers: ['gateway', 'envd', 'proxy', 'sandboxes', 'agent', 'core'],
};

const folderRules = Object.entries(allowed).map(([folder, others]) => ({
  name: `${folder}-imports-downwards`,
  comment: `src/${folder} may import ${['itself', ...others].join(', ')}, and the types of any contract.ts.`,
  severity: 'error',
  from: { path: `^src/${folder}/`, pathNot: '\\.test\\.ts$' },
  to: { path: '^src/', pathNot: [`^src/(${[folder, ...others].join('|')})/`, '/contract\\.ts$'] },
}));

module.exports = {
  forbidden: [
    {
      name: 'no-circular',
      comment: 'A cycle means that two files are one idea, or that one of them is in the wrong room.',
      severity: 'error',
      from: {},
      to: { circular: true, viaOnly: { dependencyTypesNot: ['type-only'] } },
    },
    {
      name: 'contracts-are-types-only-across-folders',
      comment: 'What another folder takes from a contract.ts that is not below it is a type, nothing that runs.',
      severity: 'error',
      from: { path: '^src/(api|envd|proxy|gateway|agent|db|core)/', pathNot: '\\.test\\.ts$' },
      to: { path: '^src/node/contract\\.ts$', dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'nobody-imports-the-command-line',
      severity: 'error',
      from: { path: '^src/', pathNot: '^src/(cli/|main\\.ts$)' },
      to: { path: '^src/(cli/|main\\.ts$)' },
    },
    {
      name: 'main-is-only-a-door',
      severity: 'error',
      from: { path: '^src/main\\.ts$' },
      to: { path: '^src/', pathNot: '^src/cli/' },
    },
    {
      name: 'no-tests-in-the-service',
      severity: 'error',
      from: { path: '^src/', pathNot: '\\.test\\.ts$' },
      to: { path: '\\.test\\.ts$|^tests/|^bench/' },
    },
    {
      name: 'no-development-packages-in-the-service',
      severity: 'error',
      from: { path: '^src/', pathNot: '\\.test\\.ts$' },
      to: { dependencyTypes: ['npm-dev', 'npm-no-pkg', 'npm-unknown'], dependencyTypesNot: ['type-only'] },
    },
    {
      name: 'every-folder-has-a-place',
      comment: 'A new folder of src/ gets its line in `allowed` above.',
      severity: 'error',
      from: { path: '^src/[^/]+/', pathNot: `^src/(cli|${Object.keys(allowed).join('|')})/` },
      to: { path: '^src/' },
    },
    ...folderRules,
  ],
  options: {
    doNotFollow: { path: ['node_modules', '^proto/'] },
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    enhancedResolveOptions: { exportsFields: ['exports'], conditionNames: ['import', 'node', 'default', 'types'] },
  },
};
