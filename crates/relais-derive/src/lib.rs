//! `#[derive(Message)]`: says which event a struct is, which aggregate it is about, and which field
//! is its key.

#![warn(missing_docs)]

use proc_macro::TokenStream;
use quote::quote;
use syn::{Attribute, Data, DeriveInput, Error, Fields, Ident, LitInt, LitStr, parse_macro_input};

/// Implements `relais::Message`.
///
/// `#[message(...)]` on the struct:
/// - `aggregate = "Order"` (needed): the kind of thing it is about
/// - `key = "order_id"` (needed): the field that names the aggregate, and orders its messages
/// - `aggregate_id = "field"`: if the aggregate's id is another field than the key
/// - `name = "OrderCreated"`: the event type; default the struct's name
/// - `version = 1`: the version of the contract
/// - `destination = "orders"`: where it always goes
/// - `id = "event_id"`: a `Uuid` field that is the message's own id
/// - `category = "event" | "command" | "reply"`
#[proc_macro_derive(Message, attributes(message))]
pub fn derive_message(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

#[derive(Default)]
struct Options {
    name: Option<LitStr>,
    aggregate: Option<LitStr>,
    key: Option<LitStr>,
    aggregate_id: Option<LitStr>,
    version: Option<LitInt>,
    destination: Option<LitStr>,
    id: Option<LitStr>,
    category: Option<LitStr>,
}

fn expand(input: &DeriveInput) -> Result<proc_macro2::TokenStream, Error> {
    let options = Options::read(&input.attrs)?;
    let missing = |what: &str| {
        Error::new_spanned(&input.ident, format!("missing `#[message({what} = \"…\")]`"))
    };
    let ident = &input.ident;
    let name = options.name.as_ref().map_or_else(|| ident.to_string(), LitStr::value);
    let aggregate = options.aggregate.as_ref().ok_or_else(|| missing("aggregate"))?;
    let key = field(input, options.key.as_ref().ok_or_else(|| missing("key"))?)?;
    let aggregate_id = match &options.aggregate_id {
        Some(name) => field(input, name)?,
        None => key.clone(),
    };
    let version = options.version.map(|v| quote!(const VERSION: i32 = #v;));
    let destination =
        options.destination.map(|d| quote!(const DESTINATION: Option<&'static str> = Some(#d);));
    let category = options.category.as_ref().map(category).transpose()?;
    let message_id = match &options.id {
        Some(id) => {
            let id = field(input, id)?;
            quote!(fn message_id(&self) -> ::core::option::Option<::relais::core::message::Id> {
                ::core::option::Option::Some(self.#id)
            })
        }
        None => quote!(),
    };
    let (generics, types, clause) = input.generics.split_for_impl();
    Ok(quote! {
        impl #generics ::relais::core::message::Message for #ident #types #clause {
            const NAME: &'static str = #name;
            const AGGREGATE: &'static str = #aggregate;
            #version
            #destination
            #category
            fn aggregate_id(&self) -> ::std::string::String {
                ::std::string::ToString::to_string(&self.#aggregate_id)
            }
            fn key(&self) -> ::std::string::String {
                ::std::string::ToString::to_string(&self.#key)
            }
            #message_id
        }
    })
}

impl Options {
    fn read(attributes: &[Attribute]) -> Result<Self, Error> {
        let mut options = Self::default();
        for attribute in attributes.iter().filter(|a| a.path().is_ident("message")) {
            attribute.parse_nested_meta(|meta| {
                let slot = match meta.path.get_ident().map(Ident::to_string).as_deref() {
                    Some("version") => {
                        options.version = Some(meta.value()?.parse()?);
                        return Ok(());
                    }
                    Some("name") => &mut options.name,
                    Some("aggregate") => &mut options.aggregate,
                    Some("key") => &mut options.key,
                    Some("aggregate_id") => &mut options.aggregate_id,
                    Some("destination") => &mut options.destination,
                    Some("id") => &mut options.id,
                    Some("category") => &mut options.category,
                    _ => {
                        return Err(meta.error(
                            "unknown option; known: name, aggregate, key, aggregate_id, version, \
                             destination, id, category",
                        ));
                    }
                };
                *slot = Some(meta.value()?.parse()?);
                Ok(())
            })?;
        }
        Ok(options)
    }
}

/// The named field, or an error that points at the option.
fn field(input: &DeriveInput, name: &LitStr) -> Result<Ident, Error> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(&input.ident, "only a struct can be a message"));
    };
    let Fields::Named(fields) = &data.fields else {
        return Err(Error::new_spanned(&input.ident, "a message needs named fields"));
    };
    let wanted = name.value();
    let found = fields.named.iter().filter_map(|f| f.ident.as_ref()).find(|i| **i == wanted);
    found.cloned().ok_or_else(|| Error::new_spanned(name, format!("no field `{wanted}`")))
}

fn category(name: &LitStr) -> Result<proc_macro2::TokenStream, Error> {
    let variant = match name.value().as_str() {
        "event" => quote!(Event),
        "command" => quote!(Command),
        "reply" => quote!(Reply),
        _ => return Err(Error::new_spanned(name, "one of: event, command, reply")),
    };
    Ok(quote! {
        const CATEGORY: ::relais::core::message::Category =
            ::relais::core::message::Category::#variant;
    })
}
