{
  description = "A command-line laboratory for performance that changes without a visible reason";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs = { self, nixpkgs }:
    let
      system = "x86_64-linux";
      pkgs = nixpkgs.legacyPackages.${system};
      manifest = (builtins.fromTOML (builtins.readFile ./Cargo.toml)).workspace.package;
    in
    {
      packages.${system}.default = pkgs.rustPlatform.buildRustPackage {
        pname = "stallscope";
        inherit (manifest) version;
        src = self;
        cargoLock.lockFile = ./Cargo.lock;
        cargoBuildFlags = [ "--package" "stallscope-cli" ];
        # Tests need compilers and rights that a sandbox lacks.
        doCheck = false;
        nativeBuildInputs = [ pkgs.installShellFiles ];
        postInstall = ''
          $out/bin/stallscope man --dir man
          installManPage man/*.1
          installShellCompletion --cmd stallscope \
            --bash <($out/bin/stallscope completions bash) \
            --fish <($out/bin/stallscope completions fish) \
            --zsh <($out/bin/stallscope completions zsh)
        '';
        meta.mainProgram = "stallscope";
      };
    };
}
