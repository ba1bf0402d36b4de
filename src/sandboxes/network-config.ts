/** The network part of a sandbox as the protocol names it (contract: SandboxNetworkConfig). */
export interface NetworkConfig extends EgressConfig {
  allowPublicTraffic?: boolean;
  maskRequestHost?: string;
  httpsPorts?: number[];
}

/** What is about the way out of a sandbox, and may be changed while it runs. */
export interface EgressConfig {
  allowOut?: string[];
  denyOut?: string[];
  egressProxy?: EgressProxy | null;
  rules?: Record<string, NetworkRule[]>;
}

export interface EgressProxy {
  /** host:port of a SOCKS5 server. */
  address: string;
  username?: string;
  password?: string;
}

export interface NetworkRule {
  transform?: { headers?: Record<string, string> };
}
