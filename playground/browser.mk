# The browser for the tests of the dashboard. Debian has it; elsewhere it has to be installed by hand.
.PHONY: chromium

chromium: ## install the browser for the tests of the dashboard, if there is none (Debian, as root)
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
	{ apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || \
	{ echo "install chromium: the tests of the dashboard need a browser"; exit 1; }
