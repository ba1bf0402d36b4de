/** The values of secrets, for what needs them in the service; no value leaves by any other way. */
export interface SecretValues {
  /** Values by name, of those of a team's secrets that exist. Names are in lower case. */
  values(teamId: string, names: readonly string[]): Promise<Record<string, string>>;
}
