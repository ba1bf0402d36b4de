import type { CompiledPolicy } from './policy.ts';

/** A sandbox in its place on the network. */
export interface Occupant {
  sandboxId: string;
  guest: string;
  policy: CompiledPolicy;
}

/** Which sandbox stands behind which address. The fence lets no other source address out of a slot, so an address is proof. */
export class Occupants {
  readonly #byGuest = new Map<string, Occupant>();
  /** Values of the secrets that rules name, by sandbox. In memory alone: the control plane gives them again after a restart. */
  readonly #secrets = new Map<string, Record<string, string>>();

  of(guest: string): Occupant | undefined {
    return this.#byGuest.get(guest);
  }

  set(occupant: Occupant): void {
    this.#byGuest.set(occupant.guest, occupant);
  }

  secretsOf(sandboxId: string): Record<string, string> {
    return this.#secrets.get(sandboxId) ?? {};
  }

  setSecrets(sandboxId: string, secrets: Record<string, string>): void {
    if (Object.keys(secrets).length > 0) this.#secrets.set(sandboxId, secrets);
    else this.#secrets.delete(sandboxId);
  }

  remove(guest: string): void {
    this.#byGuest.delete(guest);
  }
}
