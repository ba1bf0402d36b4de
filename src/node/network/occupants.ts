import type { CompiledPolicy } from './policy.ts';

/** A sandbox in its place on the network. */
export interface Occupant {
  sandboxId: string;
  guest: string;
  policy: CompiledPolicy;
  /** Values of the secrets that its rules name. In memory alone: the control plane gives them again after a restart. */
  secrets: Record<string, string>;
}

/** Which sandbox stands behind which address. The fence lets no other source address out of a slot, so an address is proof. */
export class Occupants {
  readonly #byGuest = new Map<string, Occupant>();

  of(guest: string): Occupant | undefined {
    return this.#byGuest.get(guest);
  }

  set(occupant: Occupant): void {
    this.#byGuest.set(occupant.guest, occupant);
  }

  remove(guest: string): void {
    this.#byGuest.delete(guest);
  }
}
