/** Credentials of an image's registry, as the wire has them. */
export type RegistryCredentials =
  | { type: 'registry'; username: string; password: string }
  | { type: 'aws'; awsAccessKeyId: string; awsSecretAccessKey: string; awsRegion: string }
  | { type: 'gcp'; serviceAccountJson: string };

/** What the steps of a stage begin from. */
export type BuildBase =
  | { kind: 'image'; image: string; credentials?: RegistryCredentials }
  | { kind: 'template'; reference: string }
  /** An earlier stage of the same Dockerfile. */
  | { kind: 'stage'; stage: number };

/** Where a COPY takes its files from. */
export type CopyOrigin =
  /** An archive that was uploaded before, by its hash. */
  | { kind: 'upload'; filesHash: string }
  | { kind: 'stage'; stage: number }
  | { kind: 'image'; image: string }
  /** Files that stand in the Dockerfile itself. */
  | { kind: 'inline'; files: { name: string; content: string; expand: boolean }[] };

/** What a step does. Values may hold `$NAME`, which stands for the variable of that name when the step's turn comes. */
export type BuildAction =
  /** A shell command, or the words of a program. */
  | { kind: 'run'; command: string; words?: string[]; user?: string }
  | { kind: 'copy'; sources: string[]; destination: string; owner: string; mode: string; origin: CopyOrigin }
  | { kind: 'workdir'; path: string }
  | { kind: 'user'; name: string; sudo: boolean }
  | { kind: 'env'; values: [name: string, value: string][] }
  /** A variable of the build alone, unless a variable of that name is set. */
  | { kind: 'arg'; name: string; value: string }
  /** A step that cannot be done; the build fails when its turn comes. */
  | { kind: 'refused'; reason: string };

export interface BuildStep {
  action: BuildAction;
  /** As it stands in the log. */
  text: string;
  /** Its result is made anew, and that of every step after it. */
  force: boolean;
}

export interface BuildStage {
  base: BuildBase;
  steps: BuildStep[];
}

/** Everything that a build is made of. The last stage becomes the template; what it does not need of the others is not done. */
export interface BuildPlan {
  stages: BuildStage[];
  /** undefined: what the base template has, where the base is one. */
  startCmd?: string;
  readyCmd?: string;
  /** Nothing is taken from earlier builds. */
  force: boolean;
}
